//! The emulator and its servers of files, and the scripts that run in the machine.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use headwater_daemon::{Daemon, DaemonError, DataFolder, Readiness, run};

use crate::error::EmulatorError;
use crate::kernel::Kernel;
use crate::{initramfs, program};

/// The script that runs what comes from outside.
const AGENT: &str = include_str!("agent.sh");

/// The unit of the agent, and the target that wants it, where a service manager is the first process.
const AGENT_UNIT: &str = "\
[Unit]
Description=Scripts from outside
After=basic.target
Requires=basic.target
[Service]
ExecStart=/bin/sh /run/machine/agent.sh
KillMode=process
";
const TARGET_UNIT: &str = "\
[Unit]
Description=The emulated machine
Requires=multi-user.target
After=multi-user.target
Wants=agent.service
AllowIsolate=yes
";

/// The names by which the machine mounts the folders that it is served.
const TAGS: [&str; 2] = ["host", "exchange"];

/// The size of the disk: what is not written takes no room outside.
const DISK_BYTES: u64 = 16 << 30;

/// The memory of the machine.
const MEMORY_MIB: u32 = 4096;

/// The processors of the machine. A static CPU policy needs two.
const PROCESSORS: u32 = 2;

/// The time limit of a script.
const SCRIPT_WITHIN: Duration = Duration::from_mins(60);

/// The interval between two looks at a script.
const POLL: Duration = Duration::from_millis(50);

/// How a machine starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boot {
    /// Its first process.
    pub first: FirstProcess,
    /// It reaches loopback of the machine outside at [`OUTSIDE`]; else it has no network but its own loopback.
    pub network: bool,
}

/// The address in the machine for loopback of the machine outside.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

/// The first process of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstProcess {
    /// A shell that runs scripts from outside, and nothing else.
    #[default]
    Agent,
    /// systemd with its basic services, and the same shell as a service.
    Systemd,
}

/// What a script left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptResult {
    /// Its exit code.
    pub code: i32,
    /// What it wrote.
    pub output: String,
}

/// A running machine. Everything of it ends when it is dropped, and with its starter.
#[derive(Debug)]
pub struct EmulatedMachine {
    /// Dropped before its servers.
    emulator: Daemon,
    files: [Daemon; 2],
    exchange: PathBuf,
    /// The number of the next script.
    next: u32,
    folder: DataFolder,
}

impl EmulatedMachine {
    /// Starts one; when this returns, it takes scripts. Its disk lies in `data`, or in a folder that goes with it; a disk
    /// that is there is used as it is.
    ///
    /// # Errors
    /// A program or the kernel is missing, or it does not start in time.
    pub fn start(data: Option<PathBuf>, boot: Boot) -> Result<Self, EmulatorError> {
        let folder = DataFolder::open(data)?;
        let data = folder.path().to_owned();
        let kernel = Kernel::find()?;
        let first_files = data.join("first.cpio");
        let scratch = tempfile::tempdir().map_err(DaemonError::file(std::env::temp_dir()))?;
        initramfs::write(&kernel, scratch.path(), &first_files)?;
        let disk = data.join("disk");
        if !disk.exists() {
            make_disk(&disk)?;
        }
        let exchange = data.join("exchange");
        let [host, shared] = sockets(&data);
        let files = [
            file_server("the server of this machine's files", Path::new("/"), host)?,
            file_server("the server of the exchange", &exchange, shared)?,
        ];
        let emulator = emulator(&data, &kernel, boot)?;
        let mut machine = Self { emulator, files, exchange, next: 0, folder };
        machine.boot()?;
        Ok(machine)
    }

    /// Ends everything in it at once and starts it again on its disk: what was not synced to the disk may be lost, and
    /// what was in memory is.
    ///
    /// # Errors
    /// As [`EmulatedMachine::start`].
    pub fn cut_power(&mut self, boot: Boot) -> Result<(), EmulatorError> {
        self.emulator.kill()?;
        self.emulator = emulator(self.folder.path(), &Kernel::find()?, boot)?;
        self.boot()
    }

    /// Runs a shell script to its end, as root.
    ///
    /// # Errors
    /// It does not end within an hour, or the machine has ended.
    pub fn run(&mut self, script: &str) -> Result<ScriptResult, EmulatorError> {
        let mut output = String::new();
        let code = self.run_with(script, |part| output.push_str(part))?;
        Ok(ScriptResult { code, output })
    }

    /// The same, and hands on the output as it comes.
    ///
    /// # Errors
    /// As [`EmulatedMachine::run`].
    pub fn run_with(
        &mut self,
        script: &str,
        mut output: impl FnMut(&str),
    ) -> Result<i32, EmulatorError> {
        let number = self.next;
        self.next += 1;
        let of = |ending: &str| self.exchange.join(format!("{number}.{ending}"));
        let (new, place) = (of("new"), of("sh"));
        fs::write(&new, script).map_err(DaemonError::file(&new))?;
        fs::rename(&new, &place).map_err(DaemonError::file(&place))?;
        let deadline = Instant::now() + SCRIPT_WITHIN;
        let (mut read, mut end) = (0, String::new());
        loop {
            // The code is there after all of the output is.
            let code = fs::read_to_string(of("code")).ok();
            let part = read_from(&of("output"), &mut read);
            if !part.is_empty() {
                output(&part);
                end.push_str(&part);
                end.drain(..end.ceil_char_boundary(end.len().saturating_sub(4 << 10)));
            }
            if let Some(code) = code.and_then(|code| code.trim().parse().ok()) {
                return Ok(code);
            }
            let output = || format!("{end}\n{}", self.emulator.words());
            if self.emulator.pid().is_none_or(|pid| !lives(pid)) {
                return Err(EmulatorError::MachineEnded { output: output() });
            }
            if Instant::now() >= deadline {
                let seconds = SCRIPT_WITHIN.as_secs();
                return Err(EmulatorError::Late { seconds, output: output() });
            }
            thread::sleep(POLL);
        }
    }

    fn boot(&mut self) -> Result<(), EmulatorError> {
        let _ = fs::remove_dir_all(&self.exchange);
        let units = self.exchange.join("units");
        fs::create_dir_all(&units).map_err(DaemonError::file(&units))?;
        for (path, text) in [
            (self.exchange.join("agent.sh"), AGENT),
            (units.join("agent.service"), AGENT_UNIT),
            (units.join("machine.target"), TARGET_UNIT),
        ] {
            fs::write(&path, text).map_err(DaemonError::file(&path))?;
        }
        self.next = 0;
        for (server, socket) in self.files.iter_mut().zip(sockets(self.folder.path())) {
            // It ended with the emulator that it served, and a socket of before says nothing.
            server.kill()?;
            let _ = fs::remove_file(socket);
            server.start()?;
        }
        Ok(self.emulator.start()?)
    }
}

/// What is ready when a file is there.
#[derive(Debug)]
struct Appears(PathBuf);

impl Readiness for Appears {
    fn is_ready(&mut self) -> bool {
        self.0.exists()
    }
}

fn make_disk(disk: &Path) -> Result<(), EmulatorError> {
    let file = fs::File::create(disk).map_err(DaemonError::file(disk))?;
    file.set_len(DISK_BYTES).map_err(DaemonError::file(disk))?;
    let mut making = Command::new(program::find(program::MKE2FS)?);
    Ok(run("making the disk", making.args(["-q", "-t", "ext4"]).arg(disk))?)
}

/// The sockets of the servers of files.
fn sockets(data: &Path) -> [PathBuf; 2] {
    TAGS.map(|tag| data.join(tag).with_extension("sock"))
}

/// The server of a folder to the machine, at a socket.
fn file_server(name: &str, folder: &Path, socket: PathBuf) -> Result<Daemon, EmulatorError> {
    let mut command = Command::new(program::find(program::VIRTIOFSD)?);
    command.arg(format!("--socket-path={}", socket.display()));
    // What one side writes to the exchange, the other sees at once.
    let cache = if folder == Path::new("/") { "auto" } else { "none" };
    command.args(["-o", &format!("source={}", folder.display())]);
    command.args(["-o", "sandbox=chroot", "-o", &format!("cache={cache}")]);
    let log = socket.with_extension("log");
    Ok(Daemon::new(name, command, log, Appears(socket)))
}

fn emulator(data: &Path, kernel: &Kernel, boot: Boot) -> Result<Daemon, EmulatorError> {
    let mut command = Command::new(program::find(program::QEMU)?);
    let memory = format!("memory-backend-memfd,id=memory,size={MEMORY_MIB}M,share=on");
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
    command.args(["-smp", &PROCESSORS.to_string(), "-m", &MEMORY_MIB.to_string()]);
    command.args(["-object", &memory, "-numa", "node,memdev=memory"]);
    command.args(["-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio"]);
    for (tag, socket) in TAGS.iter().zip(sockets(data)) {
        command.args(["-chardev", &format!("socket,id={tag},path={}", socket.display())]);
        command.args(["-device", &format!("vhost-user-fs-pci,chardev={tag},tag={tag}")]);
    }
    let disk = data.join("disk");
    command.args(["-drive", &format!("file={},if=virtio,format=raw", disk.display())]);
    command.args(["-device", "virtio-rng-pci"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(data.join("first.cpio"));
    if boot.network {
        command.args(["-netdev", "user,id=outside", "-device", "virtio-net-pci,netdev=outside"]);
    }
    let first = match boot.first {
        FirstProcess::Agent => "agent",
        FirstProcess::Systemd => "systemd",
    };
    let arguments = format!(
        "console=ttyS0 panic=-1 loglevel=7 cgroup_no_v1=all net.ifnames=0 machine.first={first}"
    );
    command.args(["-append", &arguments]);
    let started = data.join("exchange/started");
    Ok(Daemon::new("the emulated machine", command, data.join("console.log"), Appears(started)))
}

/// What a file has beyond `read` bytes. A character that is cut in two is shown as unknown.
fn read_from(path: &Path, read: &mut u64) -> String {
    let Ok(mut file) = fs::File::open(path) else { return String::new() };
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(*read)).and_then(|_| file.read_to_end(&mut bytes)).is_err() {
        return String::new();
    }
    *read += bytes.len() as u64;
    String::from_utf8_lossy(&bytes).into_owned()
}

fn lives(pid: u32) -> bool {
    // A process that ended and is not waited for yet has no program any more.
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}
