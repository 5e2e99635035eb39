//! The rights of a container's processes: which of those that a spec asks for this process can
//! give. Pure, but for [`OwnRights::of_this_process`].
//!
//! A root process with the capabilities of [`NEEDED`] runs each container as the user that its spec
//! names. Every other process can only run containers as itself: they share all its rights.

use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use nix::unistd::{Gid, Uid, User, getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};

use crate::container::WaitReason;
use crate::container::credentials::{self, Credentials};
use crate::pod::is_written_here;

/// The capabilities without which root cannot run a container as another user: to change user,
/// groups and capabilities, to give it its volumes, to signal it, and to make its view of mounts.
const NEEDED: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SYS_ADMIN);

/// The rights of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnRights {
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) groups: Vec<u32>,
    /// It can run containers as other users, in views of their own.
    pub(super) can_separate: bool,
}

/// The rights of a container's processes, as the launch stage sets them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaunchRights {
    /// `None`: the user and the groups of the shim.
    pub(super) identity: Option<UserIdentity>,
    /// No program gives the process more rights than it has.
    pub(super) no_new_privileges: bool,
    /// Capabilities that it never has, a bit each.
    pub(super) dropped: u64,
}

/// The user and the groups of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::runtime) struct UserIdentity {
    pub(in crate::runtime) user: u32,
    pub(in crate::runtime) group: u32,
    pub(in crate::runtime) groups: Vec<u32>,
}

/// Which rights containers get on this node.
#[derive(Clone, Debug)]
pub(super) struct RightsPolicy {
    pub(super) own: OwnRights,
    /// Containers may run as root, and as the edge's user.
    pub(super) allow_root: bool,
}

impl OwnRights {
    pub(super) fn of_this_process() -> Self {
        let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        let groups = getgroups().unwrap_or_default();
        Self {
            user: geteuid().as_raw(),
            group: getegid().as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            can_separate: geteuid().is_root() && effective.contains(NEEDED),
        }
    }

    fn is_root(&self) -> bool {
        self.user == 0
    }

    fn has_group(&self, group: u32) -> bool {
        self.group == group || self.groups.contains(&group)
    }
}

/// Why pods of this process share all its rights; `None` if each container runs as the user that its
/// spec names.
pub fn shared_rights(allow_root: bool) -> Option<String> {
    RightsPolicy::of_this_process(allow_root).shared_rights()
}

impl RightsPolicy {
    pub(super) fn of_this_process(allow_root: bool) -> Self {
        Self { own: OwnRights::of_this_process(), allow_root }
    }

    /// See [`shared_rights()`].
    fn shared_rights(&self) -> Option<String> {
        let (who, remedy) = if self.own.can_separate && self.allow_root {
            ("pods without runAsUser run as root".to_owned(), "set runAsUser".to_owned())
        } else if self.own.can_separate {
            return None;
        } else if self.own.is_root() {
            let remedy = format!("give the pod worker {}", names(NEEDED));
            ("pods run as root".to_owned(), remedy)
        } else {
            let remedy = "`headwater edged` as root keeps them apart".to_owned();
            (format!("pods run as user {}", self.own.user), remedy)
        };
        Some(format!(
            "{who}, with the rights of the edge, and can read its secrets and its key: {remedy}"
        ))
    }

    /// Checks that the container can have what its spec asks for. `edge_user` owns the edge's files.
    ///
    /// # Errors
    /// The field, the cause, and what to do.
    pub(super) fn check(
        &self,
        pod: &Pod,
        container: &Container,
        edge_user: Option<u32>,
    ) -> Result<(), WaitReason> {
        let place = credentials::path(pod, container);
        let wanted = credentials::resolve(pod, container)?;
        self.rights(&wanted).map_err(|(field, why)| refusal(&place, field, &why))?;
        self.check_user(&wanted, edge_user)
            .map_err(|why| refusal(&place, "securityContext.runAsUser", &why))?;
        let user = wanted.user.unwrap_or(self.own.user);
        if user == 0 && must_not_be_root(pod, container) {
            let why = "it is true, and the container would run as root: set runAsUser to another \
                       user";
            return Err(refusal(&place, "securityContext.runAsNonRoot", why));
        }
        self.check_mounts(pod, container)
            .map_err(|(index, why)| refusal(&place, &format!("volumeMounts[{index}]"), &why))
    }

    /// The rights of a container with these credentials.
    ///
    /// # Errors
    /// The field that this process cannot honour, and why.
    pub(super) fn rights(
        &self,
        wanted: &Credentials,
    ) -> Result<LaunchRights, (&'static str, String)> {
        let Credentials { user, group, fs_group, supplemental_groups, .. } = wanted;
        let rights = |identity| LaunchRights {
            identity,
            no_new_privileges: wanted.no_new_privileges,
            dropped: wanted.dropped,
        };
        let own = &self.own;
        let all: Vec<u32> = supplemental_groups.iter().chain(fs_group).copied().collect();
        let is_own = user.is_none_or(|user| user == own.user)
            && group.is_none_or(|group| group == own.group)
            && all.iter().all(|group| own.has_group(*group));
        // As root, a container that names any of them gets exactly what it names.
        let names_any = user.is_some() || group.is_some() || !all.is_empty();
        if is_own && !(own.can_separate && names_any) {
            return Ok(rights(None));
        }
        if own.can_separate {
            let user = user.unwrap_or(own.user);
            let group = group.unwrap_or_else(|| primary_group(user));
            return Ok(rights(Some(UserIdentity { user, group, groups: all })));
        }
        let (field, wanted) = match (user, group) {
            (Some(user), _) if *user != own.user => ("securityContext.runAsUser", *user),
            (_, Some(group)) if *group != own.group => ("securityContext.runAsGroup", *group),
            _ => ("fsGroup or supplementalGroups of spec.securityContext", all[0]),
        };
        let why = if own.is_root() {
            format!(
                "{wanted} differs from this process, which is root without the capabilities to \
                 change it: give it {}",
                names(NEEDED)
            )
        } else {
            format!(
                "{wanted} differs from user {} and its groups, and only root runs containers as \
                 others: run the pod worker as root, or leave the field out",
                own.user
            )
        };
        Err((field, why))
    }

    fn check_user(&self, wanted: &Credentials, edge_user: Option<u32>) -> Result<(), String> {
        if self.allow_root || !self.own.is_root() {
            return Ok(());
        }
        match wanted.user {
            None => {
                Err("it is missing, and the container would run as root: set a user, or start \
                         the node with --allow-root"
                    .to_owned())
            }
            Some(0) => {
                Err("0 is root, which reaches everything of the edge: set another user, or \
                            start the node with --allow-root"
                    .to_owned())
            }
            Some(user) if Some(user) == edge_user => Err(format!(
                "{user} is the user of the edge, which reaches everything of the edge: set \
                 another user"
            )),
            Some(_) => Ok(()),
        }
    }

    /// Checks that mounts are read-only where the container asks for it. Volumes that the pod worker
    /// writes are read-only by nature.
    fn check_mounts(&self, pod: &Pod, container: &Container) -> Result<(), (usize, String)> {
        let mounts = container.volume_mounts.as_deref().unwrap_or_default();
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
        for (index, mount) in mounts.iter().enumerate() {
            let volume = volumes.into_iter().flatten().find(|volume| volume.name == mount.name);
            if !is_read_only(mount) || volume.is_some_and(is_written_here) {
                continue;
            }
            if !self.own.can_separate {
                let why = "readOnly is true, and only a pod worker with the rights of root can keep \
                           the container from writing: run it as root, or leave readOnly out";
                return Err((index, why.to_owned()));
            }
            if mounts.iter().any(|other| other.name == mount.name && !is_read_only(other)) {
                let why = "the container mounts the volume once with readOnly and once without, \
                           which the process runtime cannot tell apart: use one of them";
                return Err((index, why.to_owned()));
            }
        }
        Ok(())
    }
}

/// The owner of the edge's files: of its socket, or of the folder where the socket will be.
pub(super) fn owner(socket: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    let found = socket.metadata().or_else(|_| socket.parent().unwrap_or(socket).metadata());
    found.ok().map(|found| found.uid())
}

fn is_read_only(mount: &VolumeMount) -> bool {
    mount.read_only == Some(true)
}

fn must_not_be_root(pod: &Pod, container: &Container) -> bool {
    let own = container.security_context.as_ref().and_then(|context| context.run_as_non_root);
    let shared = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    own.or_else(|| shared.and_then(|context| context.run_as_non_root)) == Some(true)
}

/// The primary group of a user of this machine. For a user that the machine does not know it is the
/// group of the same number, because group 0, Kubernetes' default, opens files of root.
fn primary_group(user: u32) -> u32 {
    let known = User::from_uid(Uid::from_raw(user)).ok().flatten();
    known.map_or(user, |known| known.gid.as_raw())
}

fn names(set: CapabilitySet) -> String {
    let names: Vec<_> = set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    names.join(", ")
}

fn refusal(place: &str, field: &str, why: &str) -> WaitReason {
    let message = format!("{place}.{field}: {why}");
    WaitReason { reason: "CreateContainerConfigError", message }
}

#[cfg(test)]
mod tests;
