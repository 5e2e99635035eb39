//! What a request names: method and path. Pure.

use http::Method;
use percent_encoding::percent_decode_str;

/// The longest path. Namespace, pod, UID and container have at most 253 bytes each.
const PATH_BYTES_MAX: usize = 2048;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/healthz`, or one check of it.
    Health(HealthCheck),
    /// `/pods`.
    Pods,
    /// `/runningpods/`.
    RunningPods,
    /// `/containerLogs/...`.
    ContainerLogs(ContainerPath),
    /// `/exec/...`.
    Exec(ContainerPath),
    /// `/attach/...`.
    Attach(ContainerPath),
    /// `/portForward/...`; the container is empty.
    PortForward(ContainerPath),
    /// `/run/...`.
    Run(ContainerPath),
    /// `/metrics`.
    Metrics,
    /// `/metrics/resource`.
    ResourceMetrics,
    /// `/metrics/cadvisor`.
    ContainerMetrics,
    /// `/metrics/probes`.
    ProbeMetrics,
    /// `/stats/summary`.
    Summary,
}

/// A check of `/healthz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthCheck {
    /// All of them.
    All,
    /// The server answers.
    Ping,
    /// The pod worker answers.
    SyncLoop,
}

/// The container that a path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerPath {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID, if the path has one.
    pub uid: Option<String>,
    /// The container's name.
    pub container: String,
}

/// The right that a request needs at a kubelet: a verb on a subresource of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The verb.
    pub verb: &'static str,
    /// The subresource.
    pub subresource: &'static str,
}

/// Why a request names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// There is no such path.
    #[error("404: Page Not Found")]
    NotFound,
    /// The path does not have this method.
    #[error("405: Method Not Allowed")]
    MethodNotAllowed,
    /// The path is too long, or no text.
    #[error("400: Bad Request")]
    Malformed,
}

impl Route {
    /// What `method` and `path` name. The path is percent-encoded, without its query.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn parse(method: &Method, path: &str) -> Result<Self, RouteError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(RouteError::Malformed);
        }
        let path = path.strip_prefix('/').ok_or(RouteError::NotFound)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        // Only then decoded: an encoded slash is part of a name, and the name of nothing.
        let parts: Result<Vec<String>, _> = path
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8().map(String::from))
            .collect();
        let parts = parts.map_err(|_| RouteError::Malformed)?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let route = Self::of(&parts).ok_or(RouteError::NotFound)?;
        if route.allows(method) { Ok(route) } else { Err(RouteError::MethodNotAllowed) }
    }

    fn of(parts: &[&str]) -> Option<Self> {
        Some(match parts {
            ["healthz"] => Self::Health(HealthCheck::All),
            ["healthz", "ping"] => Self::Health(HealthCheck::Ping),
            ["healthz", "syncloop"] => Self::Health(HealthCheck::SyncLoop),
            ["pods"] => Self::Pods,
            ["runningpods"] => Self::RunningPods,
            ["metrics"] => Self::Metrics,
            ["metrics", "resource"] => Self::ResourceMetrics,
            ["metrics", "cadvisor"] => Self::ContainerMetrics,
            ["metrics", "probes"] => Self::ProbeMetrics,
            ["stats", "summary"] => Self::Summary,
            ["containerLogs", namespace, pod, container] => {
                Self::ContainerLogs(ContainerPath::of(namespace, pod, None, container)?)
            }
            ["exec", rest @ ..] => Self::Exec(ContainerPath::parse(rest)?),
            ["attach", rest @ ..] => Self::Attach(ContainerPath::parse(rest)?),
            ["run", rest @ ..] => Self::Run(ContainerPath::parse(rest)?),
            ["portForward", namespace, pod] => {
                Self::PortForward(ContainerPath::of_pod(namespace, pod, None)?)
            }
            ["portForward", namespace, pod, uid] => {
                Self::PortForward(ContainerPath::of_pod(namespace, pod, Some(uid))?)
            }
            _ => return None,
        })
    }

    fn allows(&self, method: &Method) -> bool {
        match self {
            // SPDY clients send POST, WebSocket clients GET.
            Self::Exec(_) | Self::Attach(_) | Self::PortForward(_) => {
                method == Method::GET || method == Method::POST
            }
            Self::Run(_) => method == Method::POST,
            _ => method == Method::GET,
        }
    }

    /// The container or pod that the path names; `None`: it is about the node.
    pub fn pod(&self) -> Option<&ContainerPath> {
        match self {
            Self::ContainerLogs(path)
            | Self::Exec(path)
            | Self::Attach(path)
            | Self::PortForward(path)
            | Self::Run(path) => Some(path),
            _ => None,
        }
    }

    /// The right that a kubelet asks about.
    pub fn resource(&self) -> Resource {
        let of = |verb, subresource| Resource { verb, subresource };
        match self {
            Self::Health(_) => of("get", "healthz"),
            Self::Pods | Self::RunningPods => of("get", "pods"),
            Self::Metrics | Self::ResourceMetrics | Self::ContainerMetrics | Self::ProbeMetrics => {
                of("get", "metrics")
            }
            Self::Summary => of("get", "stats"),
            Self::ContainerLogs(_) => of("get", "proxy"),
            Self::Exec(_) | Self::Attach(_) | Self::PortForward(_) | Self::Run(_) => {
                of("create", "proxy")
            }
        }
    }

    /// The first part of the path, as metrics name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Health(_) => "healthz",
            Self::Pods => "pods",
            Self::RunningPods => "runningpods",
            Self::ContainerLogs(_) => "containerLogs",
            Self::Exec(_) => "exec",
            Self::Attach(_) => "attach",
            Self::PortForward(_) => "portForward",
            Self::Run(_) => "run",
            Self::Metrics => "metrics",
            Self::ResourceMetrics => "metrics/resource",
            Self::ContainerMetrics => "metrics/cadvisor",
            Self::ProbeMetrics => "metrics/probes",
            Self::Summary => "stats",
        }
    }
}

impl ContainerPath {
    /// `NAMESPACE/POD/CONTAINER` or `NAMESPACE/POD/UID/CONTAINER`.
    fn parse(parts: &[&str]) -> Option<Self> {
        match parts {
            [namespace, pod, container] => Self::of(namespace, pod, None, container),
            [namespace, pod, uid, container] => Self::of(namespace, pod, Some(uid), container),
            _ => None,
        }
    }

    fn of(namespace: &str, pod: &str, uid: Option<&str>, container: &str) -> Option<Self> {
        if container.is_empty() {
            return None;
        }
        Some(Self { container: container.to_owned(), ..Self::of_pod(namespace, pod, uid)? })
    }

    fn of_pod(namespace: &str, pod: &str, uid: Option<&str>) -> Option<Self> {
        if namespace.is_empty() || pod.is_empty() || uid == Some("") {
            return None;
        }
        Some(Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: uid.map(str::to_owned),
            container: String::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(path: &str) -> Result<Route, RouteError> {
        Route::parse(&Method::GET, path)
    }

    #[test]
    fn the_paths_of_a_kubelet_name_what_they_name_there() {
        assert_eq!(get("/healthz"), Ok(Route::Health(HealthCheck::All)));
        assert_eq!(get("/healthz/syncloop"), Ok(Route::Health(HealthCheck::SyncLoop)));
        assert_eq!(get("/runningpods/"), Ok(Route::RunningPods));
        let web = ContainerPath::of("shop", "web", None, "main").expect("a path");
        assert_eq!(get("/containerLogs/shop/web/main"), Ok(Route::ContainerLogs(web.clone())));
        assert_eq!(
            Route::parse(&Method::POST, "/exec/shop/web/main"),
            Ok(Route::Exec(web.clone()))
        );
        let with_uid = ContainerPath { uid: Some("u-1".to_owned()), ..web.clone() };
        assert_eq!(get("/attach/shop/web/u-1/main"), Ok(Route::Attach(with_uid)));
        let pod = ContainerPath { container: String::new(), ..web };
        assert_eq!(get("/portForward/shop/web"), Ok(Route::PortForward(pod)));
    }

    #[test]
    fn what_is_no_path_or_has_another_method_is_refused() {
        for path in ["/", "", "/exec", "/exec/shop/web", "/exec/a/b/c/d/e", "/logs/", "/pods/x"] {
            assert_eq!(get(path), Err(RouteError::NotFound), "{path}");
        }
        assert_eq!(get("/exec/shop//main"), Err(RouteError::NotFound));
        assert_eq!(get("/run/shop/web/main"), Err(RouteError::MethodNotAllowed));
        assert_eq!(Route::parse(&Method::DELETE, "/pods"), Err(RouteError::MethodNotAllowed));
        assert_eq!(get("/pods/%ff"), Err(RouteError::Malformed));
        assert_eq!(get(&format!("/{}", "x".repeat(PATH_BYTES_MAX))), Err(RouteError::Malformed));
    }

    #[test]
    fn a_path_that_leads_out_of_a_folder_is_a_name_of_nothing() {
        let route = get("/containerLogs/shop/web/..%2f..%2fetc%2fpasswd").expect("a route");
        let Route::ContainerLogs(path) = route else { panic!("{route:?}") };
        assert_eq!(path.container, "../../etc/passwd");
        assert_eq!(get("/containerLogs/shop/../../etc/passwd"), Err(RouteError::NotFound));
    }

    proptest! {
        #[test]
        fn any_path_is_answered(path in "[/a-zA-Z%.0-9]{0,60}|\\PC{0,40}") {
            let _ = get(&path);
        }
    }
}
