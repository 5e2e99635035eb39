//! `headwater ca`: a simple CA, and the certificates that it issues.
//!
//! Files are PEM: `ca.crt` and `ca.key` of the CA, and `ca.crt`, `tls.crt`, `tls.key` for each
//! owner, as in a Secret of Kubernetes. Only `--replace` overwrites a key.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use headwater_identity::authority::{Authority, AuthorityError, Validity};
use headwater_identity::{Principal, rfc3339};

use crate::args::ca::{Ca, CaCommand, Init, Issue, To, Wish};
use crate::exit::{CommandResult, Outcome};

const AUTHORITY: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// A certificate is valid from this time before now, for machines whose clocks are a little behind.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The reason why no file was written.
#[derive(Debug, thiserror::Error)]
enum CaError {
    #[error("{} exists already: nothing was written. {advice}", file.display())]
    Exists { file: PathBuf, advice: &'static str },
    #[error("{} cannot be written", file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error(
        "{} cannot be read: name the folder of the CA with --ca, or make one with \
         `headwater ca init`", file.display()
    )]
    Read { file: PathBuf, source: io::Error },
    #[error("the CA in {} cannot issue", dir.display())]
    Authority { dir: PathBuf, source: AuthorityError },
}

/// Runs the command.
pub(crate) fn run(args: &Ca) -> CommandResult {
    let now = SystemTime::now();
    match &args.command {
        CaCommand::Init(args) => init(args, now)?,
        CaCommand::Issue(args) => issue(args, now)?,
    }
    Ok(Outcome::Done)
}

fn init(args: &Init, now: SystemTime) -> Result<(), CaError> {
    let validity = validity(now, args.days);
    let authority = Authority::create(&args.name, validity).map_err(|source| {
        let dir = args.dir.clone();
        CaError::Authority { dir, source }
    })?;
    folder(&args.dir)?;
    let advice = "Every certificate of that CA needs it: create the new one in another folder.";
    // The key is written first: a second `init` stops here, so it never replaces a CA.
    write_new(&args.dir.join(AUTHORITY_KEY), &authority.key(), advice)?;
    write_new(&args.dir.join(AUTHORITY), authority.certificate(), advice)?;
    wrote(&args.dir, &[AUTHORITY, AUTHORITY_KEY]);
    eprintln!(
        "The CA is valid until {}. Keep {AUTHORITY_KEY} secret: with it, anyone can pose as any \
         node.\nNext: headwater ca issue hub NAME --dns HOST --ca {dir}, and headwater ca issue \
         node NAME --ca {dir}",
        rfc3339(validity.until),
        dir = args.dir.display(),
    );
    Ok(())
}

fn issue(args: &Issue, now: SystemTime) -> Result<(), CaError> {
    let (to, role, wish, addresses): (Principal, _, _, Vec<String>) = match &args.to {
        To::Node(wish) => (Principal::Node(wish.name.clone()), "node", wish, Vec::new()),
        To::Operator(wish) => {
            (Principal::Operator(wish.name.clone()), "operator", wish, Vec::new())
        }
        To::Hub(server) => {
            (Principal::Hub(server.wish.name.clone()), "hub", &server.wish, server.addresses())
        }
        To::Controller(server) => {
            let owner = Principal::Controller(server.wish.name.clone());
            (owner, "controller", &server.wish, server.addresses())
        }
    };
    let authority = load(&wish.ca)?;
    let of_ca = |source| CaError::Authority { dir: wish.ca.clone(), source };
    let validity = validity(now, wish.days);
    let issued = authority.issue(&to, &addresses, validity).map_err(of_ca)?;
    let out =
        wish.out.clone().unwrap_or_else(|| wish.ca.join(format!("{role}-{}", wish.name.as_str())));
    folder(&out)?;
    if wish.replace {
        // A running process loads pairs only: it keeps the old pair until both files are new.
        write_over(&out.join(KEY), &issued.key)?;
        write_over(&out.join(CERTIFICATE), &issued.certificate)?;
    } else {
        let advice = "Replace it with --replace, or name another folder with --out.";
        write_new(&out.join(KEY), &issued.key, advice)?;
        write_new(&out.join(CERTIFICATE), &issued.certificate, advice)?;
    }
    write_over(&out.join(AUTHORITY), authority.certificate())?;
    wrote(&out, &[AUTHORITY, CERTIFICATE, KEY]);
    eprintln!("The certificate of {to} is valid until {}.", rfc3339(validity.until));
    eprintln!("{}", how_to_use(&to, wish, &out));
    Ok(())
}

fn how_to_use(to: &Principal, wish: &Wish, out: &Path) -> String {
    let file = |name| out.join(name).display().to_string();
    let flags = format!(
        "--tls-ca {} --tls-cert {} --tls-key {}",
        file(AUTHORITY),
        file(CERTIFICATE),
        file(KEY)
    );
    let name = wish.name.as_str();
    match to {
        Principal::Node(_) => format!(
            "Copy the folder to the node, and start: headwater edge --node {name} --hub HOST:PORT \
             {flags}"
        ),
        Principal::Hub(_) => {
            format!("Copy the folder to the hub, and start: headwater hub --listen ADDR {flags}")
        }
        Principal::Controller(_) => format!(
            "Copy the folder to the controller, and start: headwater controller --listen ADDR {flags}"
        ),
        Principal::Operator(_) => format!("Use it with: {flags}"),
    }
}

fn validity(now: SystemTime, days: u64) -> Validity {
    let days = u32::try_from(days).unwrap_or(u32::MAX);
    Validity { from: now - CLOCK_SKEW, until: now + DAY * days }
}

fn load(dir: &Path) -> Result<Authority, CaError> {
    let read = |name: &str| {
        let file = dir.join(name);
        fs::read_to_string(&file).map_err(|source| CaError::Read { file, source })
    };
    let (certificate, key) = (read(AUTHORITY)?, read(AUTHORITY_KEY)?);
    Authority::from_pem(&certificate, &key)
        .map_err(|source| CaError::Authority { dir: dir.to_owned(), source })
}

fn folder(dir: &Path) -> Result<(), CaError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| CaError::Write { file: dir.to_owned(), source })
}

/// Writes a new file.
fn write_new(file: &Path, text: &str, advice: &'static str) -> Result<(), CaError> {
    let made = open().create_new(true).open(file);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(CaError::Exists { file: file.to_owned(), advice })
        }
        made => made
            .and_then(|made| fill(made, text))
            .map_err(|source| CaError::Write { file: file.to_owned(), source }),
    }
}

/// Replaces a file atomically; the old one may be missing.
fn write_over(file: &Path, text: &str) -> Result<(), CaError> {
    let new = file.with_extension("new");
    open()
        .create(true)
        .truncate(true)
        .open(&new)
        .and_then(|made| fill(made, text))
        .and_then(|()| fs::rename(&new, file))
        .map_err(|source| CaError::Write { file: file.to_owned(), source })
}

/// Opens a file that only its owner may read. Two of the three files are no secret.
fn open() -> OpenOptions {
    let mut open = OpenOptions::new();
    open.write(true).mode(0o600);
    open
}

fn fill(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn wrote(dir: &Path, names: &[&str]) {
    for name in names {
        println!("{}", dir.join(name).display());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn ca(words: &str) -> Result<(), CaError> {
        let words = ["headwater", "ca"].into_iter().chain(words.split(' '));
        let Command::Ca(args) = Cli::try_parse_from(words).expect("words").command else {
            panic!("another command");
        };
        match &args.command {
            CaCommand::Init(args) => init(args, SystemTime::now()),
            CaCommand::Issue(args) => issue(args, SystemTime::now()),
        }
    }

    #[test]
    fn a_ca_issues_what_both_ends_take_and_overwrites_no_key() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("ca");
        let at = root.display();
        ca(&format!("init {at}")).expect("made");
        ca(&format!("issue node a --ca {at}")).expect("issued");
        ca(&format!("issue hub h --ip 127.0.0.1 --dns hub.test --ca {at}")).expect("issued");
        for name in ["ca.key", "node-a/tls.key", "hub-h/tls.key"] {
            let mode = fs::metadata(root.join(name)).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let files = |of: &str| headwater_identity::TlsFiles {
            ca: root.join(of).join(AUTHORITY),
            certificate: root.join(of).join(CERTIFICATE),
            key: root.join(of).join(KEY),
        };
        let clock = headwater_identity::system_clock;
        headwater_identity::Acceptor::open(files("hub-h"), clock()).expect("a hub");
        let node = headwater_identity::Connector::open(files("node-a"), clock()).expect("a node");
        node.check_owner(&"headwater://node/a".parse().expect("a principal")).expect("its own");

        let key = || fs::read(root.join("node-a/tls.key")).expect("there");
        let before = key();
        let again = ca(&format!("issue node a --ca {at}")).expect_err("the key exists");
        assert!(matches!(again, CaError::Exists { .. }), "{again:?}");
        assert!(matches!(ca(&format!("init {at}")), Err(CaError::Exists { .. })));
        assert_eq!(key(), before);
        ca(&format!("issue node a --replace --ca {at}")).expect("replaced");
        assert_ne!(key(), before);
        headwater_identity::Connector::open(files("node-a"), clock()).expect("a pair");
    }

    #[test]
    fn a_ca_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().join("none");
        let error = ca(&format!("issue node a --ca {}", at.display())).expect_err("none");
        assert!(error.to_string().contains("ca init"), "{error}");
    }
}
