//! A docker config: the logins of registries, as `docker login` writes them.
//!
//! A malformed entry is named and left out; the others count. No message has a part of the content.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;
use serde_json::Value;

use crate::runtime::RegistryCredentials;

/// The largest docker config: a Secret has at most 1 MiB, and a node's file needs no more.
pub(crate) const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Entries that are used: more servers than any node pulls from. It bounds the work for one pull.
const ENTRIES_MAX: usize = 1000;

/// The logins of one config, by server.
#[derive(Default)]
pub(super) struct DockerConfig {
    /// The server as it is written, and its login.
    pub(super) logins: Vec<(String, Login)>,
    /// What is malformed.
    pub(super) problems: Vec<String>,
}

/// A user of a registry.
pub(super) struct Login {
    username: String,
    password: String,
}

/// The file `config.json`.
#[derive(Deserialize)]
struct ConfigFile {
    #[serde(default)]
    auths: BTreeMap<String, Value>,
}

/// An entry of either form.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    /// `username:password` in base64; it comes before both others.
    #[serde(default)]
    auth: Option<String>,
}

impl DockerConfig {
    /// The form of `~/.docker/config.json`: `{"auths": {SERVER: ENTRY}}`.
    ///
    /// # Errors
    /// The bytes are no such config.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        check_size(bytes)?;
        let file: ConfigFile = serde_json::from_slice(bytes).map_err(|error| no_config(&error))?;
        Ok(Self::of(file.auths))
    }

    /// The form of `~/.dockercfg`: `{SERVER: ENTRY}`.
    ///
    /// # Errors
    /// The bytes are no such config.
    pub(super) fn parse_old(bytes: &[u8]) -> Result<Self, String> {
        check_size(bytes)?;
        serde_json::from_slice(bytes).map(Self::of).map_err(|error| no_config(&error))
    }

    fn of(entries: BTreeMap<String, Value>) -> Self {
        let mut config = Self::default();
        let left_out = entries.len().saturating_sub(ENTRIES_MAX);
        if left_out > 0 {
            config.problems.push(format!("{left_out} entries above {ENTRIES_MAX} are left out"));
        }
        for (server, entry) in entries.into_iter().take(ENTRIES_MAX) {
            match Login::of(entry) {
                Ok(login) => config.logins.push((server, login)),
                Err(why) => config.problems.push(format!("entry {server:?}: {why}")),
            }
        }
        config
    }
}

impl Login {
    fn of(entry: Value) -> Result<Self, &'static str> {
        let entry = Entry::deserialize(entry).map_err(|_| "it is no object of texts")?;
        let Some(auth) = entry.auth.filter(|auth| !auth.is_empty()) else {
            let username = entry.username.unwrap_or_default();
            return Ok(Self { username, password: entry.password.unwrap_or_default() });
        };
        // As a kubelet, which takes both with and without padding.
        let auth = auth.trim();
        let engine = if auth.ends_with('=') { &STANDARD } else { &STANDARD_NO_PAD };
        let decoded = engine
            .decode(auth)
            .or_else(|_| STANDARD.decode(auth))
            .map_err(|_| "its auth is not base64")?;
        let text = String::from_utf8(decoded).map_err(|_| "its auth is not text")?;
        let (username, password) =
            text.split_once(':').ok_or("its auth is not `username:password` in base64")?;
        let password = password.trim_matches('\0');
        Ok(Self { username: username.to_owned(), password: password.to_owned() })
    }

    pub(super) fn credentials(&self) -> RegistryCredentials {
        RegistryCredentials { username: self.username.clone(), password: self.password.clone() }
    }
}

fn check_size(bytes: &[u8]) -> Result<(), String> {
    if bytes.len() <= CONFIG_BYTES_MAX {
        return Ok(());
    }
    Err(format!("its docker config has more than {CONFIG_BYTES_MAX} bytes"))
}

/// The place of an error, without the text around it: that may be a password.
fn no_config(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    format!("it is no docker config (line {line}, column {column})")
}
