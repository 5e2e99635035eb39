//! The launch stage: the shim's program once more, as a process of one thread that becomes a
//! command of the container.
//!
//! The shim has threads, and a process with threads cannot safely prepare itself between fork and
//! exec. So the shim starts itself again with [`ARGUMENT`] and sends the order over a socket, which is
//! this process's standard input. The stage leaves the shim's session, makes the container's view
//! of mounts, gives up every right that the container does not have, and replaces itself by the
//! command. The socket closes with that. If a step fails, the stage sends the error instead.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Pid, Uid, getppid, setgroups, setresgid, setresuid, setsid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
};
use serde::{Deserialize, Serialize};

use super::view;
use crate::runtime::pod_files::volumes;
use crate::runtime::process::rights::{LaunchRights, UserIdentity};
use crate::runtime::process::run_spec::{Layout, Place};

/// The argument with which the shim starts its launch stage, in the place of a directory.
pub(super) const ARGUMENT: &str = "launch";

/// The stage's line before it becomes the command. After it comes nothing, or why that failed.
pub(super) const READY: &str = "ready\n";

/// The mask of Kubernetes' containers: others may read what a container writes.
const UMASK: Mode = Mode::from_bits_truncate(0o022);

/// What the stage becomes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaunchOrder<'a> {
    /// The shim, with which the command ends.
    pub(super) parent: i32,
    pub(super) argv: Cow<'a, [String]>,
    pub(super) place: Cow<'a, Place>,
    /// The root directory that is made first.
    pub(super) layout: Option<Cow<'a, Layout>>,
}

/// Becomes the command that the order on the standard input names. Returns only if that fails.
pub(super) fn run() -> ExitCode {
    let (mut channel, error) = match take_channel() {
        Ok(mut channel) => {
            let never = read_order(&mut channel).and_then(|order| become_command(&order, &channel));
            let Err(error) = never;
            (channel, error)
        }
        Err(error) => {
            eprintln!("a shim starts its launch stage: {error}");
            return ExitCode::from(2);
        }
    };
    // The shim reads it, unless it has ended meanwhile.
    let _ = write!(channel, "{error}");
    ExitCode::FAILURE
}

/// Takes the socket from the standard input, which becomes empty. The socket closes on exec.
fn take_channel() -> io::Result<UnixStream> {
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    Ok(UnixStream::from(channel))
}

fn read_order(channel: &mut UnixStream) -> io::Result<LaunchOrder<'static>> {
    let mut text = Vec::new();
    channel.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn become_command(
    order: &LaunchOrder<'_>,
    channel: &UnixStream,
) -> io::Result<std::convert::Infallible> {
    let LaunchOrder { parent, argv, place, layout } = order;
    let (program, args) = argv.split_first().ok_or_else(|| io::Error::other("no command"))?;
    umask(UMASK);
    // No terminal, and no signal of another session.
    setsid()?;
    if let Some(view) = &place.view {
        view::enter(view).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot make the view of mounts: {error}"))
        })?;
    }
    give_up_rights(&place.rights)?;
    if let Some(layout) = layout {
        // As the container's user: a link that the container left in its directory leads no further
        // than its own rights.
        volumes::root(layout).map_err(io::Error::other)?;
    }
    // Only now: a change of the user takes the signal back.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != Pid::from_raw(*parent) {
        return Err(io::Error::other("the shim has ended"));
    }
    SigSet::empty().thread_set_mask()?;
    (&*channel).write_all(READY.as_bytes())?;
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&place.env).current_dir(&place.cwd);
    Err(command.exec())
}

/// Leaves the process with the rights of the container, and no way back.
fn give_up_rights(rights: &LaunchRights) -> io::Result<()> {
    let dropped = CapabilitySet::from_bits_retain(rights.dropped);
    let is_bounded = bound_capabilities(dropped)?;
    if let Some(UserIdentity { user, group, groups }) = &rights.identity {
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        let (user, group) = (Uid::from_raw(*user), Gid::from_raw(*group));
        setgroups(&groups)?;
        setresgid(group, group, group)?;
        setresuid(user, user, user)?;
    }
    let sets = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: sets.effective - dropped,
            permitted: sets.permitted - dropped,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    clear_ambient_capability_set()?;
    // Without the right to bound what programs can gain, they gain nothing.
    if rights.no_new_privileges || !is_bounded {
        nix::sys::prctl::set_no_new_privs()?;
    }
    Ok(())
}

/// Bounds the capabilities that a program can gain. Returns whether this process may.
fn bound_capabilities(dropped: CapabilitySet) -> io::Result<bool> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        // The kernel refuses the question about a capability that it does not have.
        let is_gainable = dropped.contains(capability)
            && capability_is_in_bounding_set(capability).unwrap_or(false);
        if !is_gainable {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(rustix::io::Errno::PERM) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
