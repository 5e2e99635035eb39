//! The name that a pod has for itself.

use headwater_edged::container::WaitReason;
use k8s_openapi::api::core::v1::Pod;

use super::{NodeFacts, refused, spec};

/// The longest name of a host (`kubelet_pods.go`, `truncatePodHostnameIfNeeded`): the kernel has 64 bytes
/// with the final zero.
const HOSTNAME_BYTES_MAX: usize = 63;

/// The longest full name: the kernel's `__NEW_UTS_LEN`, as a kubelet counts (`pkg/kubelet/util`,
/// `GetNodenameForKernel`).
const FULL_NAME_BYTES_MAX: usize = 64;

/// The names of a pod: the short one, and the domain if it has a subdomain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodName {
    pub(super) hostname: String,
    pub(super) domain: Option<String>,
}

impl PodName {
    /// `spec.hostnameOverride` as it is, else `spec.hostname`, else the pod's name, shortened to what a kernel takes.
    ///
    /// # Errors
    /// `hostname` or `subdomain` is no label of DNS (RFC 1123), or `hostnameOverride` no name of it.
    pub(super) fn of(
        pod: &Pod,
        name: &str,
        namespace: &str,
        node: &NodeFacts,
    ) -> Result<Self, WaitReason> {
        let spec = spec(pod);
        if let Some(name) = &spec.hostname_override {
            return Ok(Self { hostname: whole_name(name)?, domain: None });
        }
        let hostname = label(spec.hostname.as_deref(), "hostname")?.unwrap_or(name);
        let mut end = hostname.len().min(HOSTNAME_BYTES_MAX);
        while !hostname.is_char_boundary(end) {
            end -= 1;
        }
        let hostname = if end < hostname.len() {
            hostname[..end].trim_end_matches(['-', '.'])
        } else {
            hostname
        };
        let domain = label(spec.subdomain.as_deref(), "subdomain")?;
        let domain =
            domain.map(|subdomain| format!("{subdomain}.{namespace}.svc.{}", node.cluster_domain));
        Ok(Self { hostname: hostname.to_owned(), domain })
    }

    /// The name that the kernel has: with `setHostnameAsFQDN` it is the full one.
    ///
    /// # Errors
    /// The full name is too long for a kernel.
    pub(super) fn of_kernel(&self, pod: &Pod) -> Result<String, WaitReason> {
        let domain = self.domain.as_ref().filter(|_| spec(pod).set_hostname_as_fqdn == Some(true));
        let Some(domain) = domain else { return Ok(self.hostname.clone()) };
        let full = format!("{}.{domain}", self.hostname);
        if full.len() > FULL_NAME_BYTES_MAX {
            return Err(refused(format!(
                "spec.setHostnameAsFQDN: the full name {full} has more than {FULL_NAME_BYTES_MAX} \
                 characters, which no kernel takes"
            )));
        }
        Ok(full)
    }
}

/// A name of DNS that a kernel takes (KEP-4762).
fn whole_name(name: &str) -> Result<String, WaitReason> {
    let field = "hostnameOverride";
    name.split('.').try_for_each(|part| match label(Some(part), field)? {
        Some(_) => Ok(()),
        None => Err(refused(format!("spec.{field}: {name:?} is no name of DNS (RFC 1123)"))),
    })?;
    if name.len() > FULL_NAME_BYTES_MAX {
        return Err(refused(format!(
            "spec.{field}: {name} has more than {FULL_NAME_BYTES_MAX} characters, which no kernel takes"
        )));
    }
    Ok(name.to_owned())
}

/// A label of DNS, if there is any text.
fn label<'t>(text: Option<&'t str>, field: &str) -> Result<Option<&'t str>, WaitReason> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = text.len() <= HOSTNAME_BYTES_MAX
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    if is_label {
        return Ok(Some(text));
    }
    Err(refused(format!(
        "spec.{field}: {text:?} is no label of DNS: use a-z, 0-9 and -, at most 63"
    )))
}
