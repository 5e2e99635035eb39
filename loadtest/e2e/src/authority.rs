//! A certificate authority for the parts of a test, made as a person makes one.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::running::{headwater, output};

/// The folder with its certificates, gone with it.
pub struct Authority(TempDir);

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// When `headwater ca` does not make it.
    #[expect(clippy::new_without_default, reason = "it runs a program")]
    pub fn new() -> Self {
        let authority = Self(TempDir::new().expect("a temporary folder"));
        run(authority.0.path(), &["init", "ca"]);
        authority
    }

    /// Issues a certificate, and gives the flags that use it. A part that listens has one for loopback.
    ///
    /// # Panics
    /// When `headwater ca` does not issue it.
    pub fn issue(&self, role: &str, name: &str) -> Vec<String> {
        self.issue_at(role, name, "127.0.0.1")
    }

    /// The same, where others reach the part at another address.
    ///
    /// # Panics
    /// As [`Authority::issue`].
    pub fn issue_at(&self, role: &str, name: &str, address: &str) -> Vec<String> {
        let mut args = vec!["issue", role, name, "--ca", "ca", "--out", name];
        if role != "node" {
            args.extend(["--ip", address]);
        }
        run(self.0.path(), &args);
        let file = |file: &str| self.0.path().join(name).join(file).display().to_string();
        let flags = [("--tls-ca", "ca.crt"), ("--tls-cert", "tls.crt"), ("--tls-key", "tls.key")];
        flags.iter().flat_map(|(flag, name)| [(*flag).to_owned(), file(name)]).collect()
    }

    /// A settings file, beside the certificates.
    ///
    /// # Panics
    /// When the disk does not take it.
    pub fn settings(&self, text: &str) -> String {
        let file = self.0.path().join("part.toml");
        fs::write(&file, text).expect("written");
        file.display().to_string()
    }
}

fn run(folder: &Path, args: &[&str]) {
    let made = output(headwater().current_dir(folder).arg("ca").args(args));
    assert!(made.status.success(), "{args:?}: {}", String::from_utf8_lossy(&made.stderr));
}
