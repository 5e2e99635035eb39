//! A registry of images on loopback of the namespaces.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use headwater_daemon::{DaemonError, run, search_path};

use crate::error::LabError;
use crate::machine::{LogLine, Machine, Server};
use crate::program;

/// The words of its log when it serves.
const LISTENS: &str = "listening on";

/// A user of a registry.
#[derive(Clone, Debug)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// A running registry; it is killed when dropped.
#[derive(Debug)]
pub struct Registry {
    server: Server,
    port: u16,
    login: Option<Login>,
}

impl Registry {
    pub(crate) fn start(
        machine: &Machine,
        data: &Path,
        port: u16,
        login: Option<Login>,
    ) -> Result<Self, LabError> {
        program::require(&program::REGISTRY, &search_path([]))?;
        let folder = data.join(format!("registry-{port}"));
        fs::create_dir_all(&folder).map_err(DaemonError::file(&folder))?;
        let file = |name: &str| folder.join(name);
        let mut config = format!(
            "version: 0.1\nlog: {{level: info}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n\
             storage: {{filesystem: {{rootdirectory: '{}'}}, delete: {{enabled: true}}}}\n",
            file("storage").display()
        );
        if let Some(login) = &login {
            let passwords = file("htpasswd");
            fs::write(&passwords, entry(login)?).map_err(DaemonError::file(&passwords))?;
            let passwords = passwords.display();
            config += &format!("auth: {{htpasswd: {{realm: lab, path: '{passwords}'}}}}\n");
        }
        let path = file("config.yml");
        fs::write(&path, config).map_err(DaemonError::file(&path))?;
        let mut command = machine.command("docker-registry");
        command.arg("serve").arg(&path);
        let log = file("registry.log");
        let name = format!("the registry at 127.0.0.1:{port}");
        let mut server = Server::new(&name, command, log.clone(), LogLine::new(log, LISTENS));
        server.start()?;
        Ok(Self { server, port, login })
    }

    /// The registry's process: killed, frozen and started again on its data.
    pub fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Its address in the namespaces: the host of the names of its images.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn push(
        &self,
        machine: &Machine,
        archive: &Path,
        repository: &str,
    ) -> Result<String, LabError> {
        let name = format!("{}/{repository}", self.address());
        let mut copy = machine.command("skopeo");
        copy.args(["copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false"]);
        if let Some(login) = &self.login {
            copy.arg("--dest-creds").arg(format!("{}:{}", login.user, login.password));
        }
        copy.arg(format!("oci-archive:{}", archive.display())).arg(format!("docker://{name}"));
        run(&format!("sending the image {name}"), &mut copy)?;
        Ok(name)
    }
}

/// The line of a password file.
fn entry(login: &Login) -> Result<Vec<u8>, LabError> {
    let failed = |source| DaemonError::Program { program: "htpasswd".to_owned(), source };
    let mut htpasswd = Command::new("htpasswd");
    htpasswd.args(["-Bbn", &login.user, &login.password]).stdin(Stdio::null());
    let output = htpasswd.output().map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(DaemonError::Failed {
        what: "making a password file".to_owned(),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
    .into())
}
