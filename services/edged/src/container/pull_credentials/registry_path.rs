//! The registry and the repository of an image, and which entries of a docker config are for them.
//!
//! The rules of names are those of `github.com/distribution/reference`; those of matching are those of
//! `k8s.io/kubernetes/pkg/credentialprovider/keyring.go`.

/// The registry of names without one.
const DOCKER_HUB: &str = "docker.io";

/// The older name of that registry, under which `docker login` writes its entry.
const DOCKER_HUB_INDEX: &str = "index.docker.io";

/// The repository of an image, with its registry: `docker.io/library/busybox`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    host: String,
    /// Begins with `/`.
    path: String,
}

/// The server of an entry without its scheme: a host in which each part may have wildcards, perhaps a
/// port, and perhaps the beginning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryPath {
    text: String,
}

impl Repository {
    /// The repository of an image's name; `None` if the name has none.
    pub(super) fn of(image: &str) -> Option<Self> {
        let name = image.split('@').next().unwrap_or_default();
        let name = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => name,
            _ => name,
        };
        let is_host = |text: &str| text.contains(['.', ':']) || text == "localhost";
        let (host, path) = match name.split_once('/') {
            Some((host, path)) if is_host(host) => (host, path.to_owned()),
            Some(_) => (DOCKER_HUB, name.to_owned()),
            None => (DOCKER_HUB, format!("library/{name}")),
        };
        let host = if host == DOCKER_HUB_INDEX { DOCKER_HUB } else { host };
        let is_empty = name.is_empty() || path.is_empty();
        (!is_empty).then(|| Self { host: host.to_owned(), path: format!("/{path}") })
    }

    pub(super) fn is_docker_hub(&self) -> bool {
        self.host == DOCKER_HUB
    }
}

impl EntryPath {
    /// The path of an entry: docker writes `https://HOST/v1/`, which means the whole host.
    pub(super) fn of(server: &str) -> Self {
        let text = server.trim_start_matches("https://").trim_start_matches("http://");
        let (host, path) = split_host(text);
        let path = match path.get(..4) {
            Some("/v1/" | "/v2/") => &path[3..],
            _ => path,
        };
        let path = if path == "/" { "" } else { path };
        Self { text: format!("{host}{path}") }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn is_docker_hub(&self) -> bool {
        self.text == DOCKER_HUB_INDEX
    }

    /// Whether the entry is for this repository: the port is the same, the parts of the host match one
    /// by one, and the repository begins with the path.
    pub(super) fn matches(&self, repository: &Repository) -> bool {
        let (host, path) = split_host(&self.text);
        let ((host, port), (of_host, of_port)) = (split_port(host), split_port(&repository.host));
        let parts = || host.split('.').zip(of_host.split('.'));
        port == of_port
            && host.split('.').count() == of_host.split('.').count()
            && repository.path.starts_with(path)
            && parts().all(|(pattern, part)| matches_glob(pattern.as_bytes(), part.as_bytes()))
    }
}

/// The host with its port, and the path from its `/` on.
fn split_host(text: &str) -> (&str, &str) {
    text.split_at(text.find('/').unwrap_or(text.len()))
}

fn split_port(host: &str) -> (&str, &str) {
    host.rsplit_once(':').unwrap_or((host, ""))
}

/// Whether `text` matches a pattern in which `*` is any text and `?` is any character. Its time is the
/// product of both lengths at most.
fn matches_glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut in_text) = (0, 0);
    // Where the last `*` is, and the place in the text from which it was tried last.
    let mut star: Option<(usize, usize)> = None;
    while in_text < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_text));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[in_text] => {
                at += 1;
                in_text += 1;
            }
            _ => {
                let Some((place, from)) = star else { return false };
                star = Some((place, from + 1));
                (at, in_text) = (place + 1, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}
