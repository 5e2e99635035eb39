//! The user of a container's processes: of the pod's spec, else of its image.

use headwater_edged::container::WaitReason;
use headwater_edged::container::credentials::{self, Credentials};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::container::ImageFacts;
use super::{own_security, pod_security, refused};

/// The largest id that Kubernetes takes (`validation.IsValidUserID`).
const ID_MAX: i64 = i32::MAX as i64;

/// The user as the runtime is asked for it: a number or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum User {
    Id(i64),
    Name(String),
}

/// Decides the user. An image that names none runs as root (`helpers.go`, `getImageUser`).
///
/// # Errors
/// `runAsNonRoot` is set, and the user is root or may be it: a name says nothing about its number
/// (`security_context_others.go`, `verifyRunAsNonRoot`).
pub(super) fn user(
    pod: &Pod,
    container: &Container,
    credentials: &Credentials,
    image: &ImageFacts,
) -> Result<User, WaitReason> {
    let own = own_security(container).run_as_non_root;
    let must_not_be_root = own.or(pod_security(pod).run_as_non_root) == Some(true);
    let fail = |why: String| {
        let place = credentials::path(pod, container);
        Err(refused(format!("{place}: container has runAsNonRoot and {why}")))
    };
    if let Some(user) = credentials.user {
        if must_not_be_root && user == 0 {
            return fail("runAsUser is 0: set another user".to_owned());
        }
        return Ok(User::Id(user.into()));
    }
    let user = match (image.user_id, image.user_name.as_str()) {
        (Some(id), _) => User::Id(id),
        (None, "") => User::Id(0),
        (None, name) => User::Name(name.to_owned()),
    };
    match &user {
        _ if !must_not_be_root => Ok(user),
        User::Id(0) => fail("image will run as root: set runAsUser".to_owned()),
        User::Id(1..=ID_MAX) => Ok(user),
        User::Id(id) => fail(format!("image has an invalid user id ({id}): set runAsUser")),
        User::Name(name) => fail(format!(
            "image has non-numeric user ({name}), cannot verify user is non-root: set runAsUser"
        )),
    }
}
