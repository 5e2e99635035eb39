//! Whether a text names an image. Pure.
//!
//! The grammar is that of `github.com/distribution/reference`, with a host and a path filled in where a name has
//! none. The words are those of a kubelet.

/// The longest name without tag and digest, with its host.
const NAME_BYTES_MAX: usize = 255;

/// The longest tag.
const TAG_BYTES_MAX: usize = 128;

/// The fewest digits of a digest.
const DIGEST_DIGITS_MIN: usize = 32;

/// The host of a name without one, and the folder of a name without a path.
const HOST_DEFAULT: &str = "docker.io";
const FOLDER_DEFAULT: &str = "library";

/// Checks that `image` is a name with an optional tag and digest.
///
/// # Errors
/// A kubelet's words for a container that waits with the reason `InvalidImageName`.
pub(crate) fn check(image: &str) -> Result<(), String> {
    find_fault(image).map_or(Ok(()), |fault| {
        Err(format!(
            "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {fault}"
        ))
    })
}

fn find_fault(image: &str) -> Option<String> {
    let wrong = || Some("invalid reference format".to_owned());
    if image.len() == 64 && image.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Some(format!(
            "invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"
        ));
    }
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (name, tag) = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    };
    let is_host = |text: &str| {
        text.contains(['.', ':'])
            || text == "localhost"
            || text.bytes().any(|b| b.is_ascii_uppercase())
    };
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if is_host(host) => (host, path.to_owned()),
        Some(_) => (HOST_DEFAULT, name.to_owned()),
        None => (HOST_DEFAULT, format!("{FOLDER_DEFAULT}/{name}")),
    };
    if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(format!(
            "invalid reference format: repository name ({path}) must be lowercase"
        ));
    }
    let is_valid = is_domain(host)
        && path.split('/').all(is_path_part)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if !is_valid {
        return wrong();
    }
    (host.len() + 1 + path.len() > NAME_BYTES_MAX)
        .then(|| "repository name must not be more than 255 characters".to_owned())
}

/// A host of letters, digits, dots and dashes, or an address in brackets, perhaps with a port.
fn is_domain(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let is_part = |part: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(inner)
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_name = match address {
        Some(address) => {
            !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':')
        }
        None => name.split('.').all(is_part),
    };
    is_name && port.is_none_or(is_port)
}

/// Lower letters and digits, separated by a dot, one or two underscores, or any number of dashes.
fn is_path_part(part: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut separators = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let bytes = part.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(first, last)| is_plain(*first) && is_plain(*last))
        && separators.all(|separator| {
            matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-')
        })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let mut bytes = tag.bytes();
    tag.len() <= TAG_BYTES_MAX
        && bytes.next().is_some_and(is_word)
        && bytes.all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, digits)) = digest.split_once(':') else { return false };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && digits.len() >= DIGEST_DIGITS_MIN
        && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_host_a_path_a_tag_and_a_digest() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for name in [
            "web",
            "web:1",
            "web:v1.2_3-rc",
            "team/web",
            "localhost/a/b-c/d__e.f:latest",
            "127.0.0.1:5000/team/web:1",
            "Registry.example/web",
            "[fe80::1]:5000/web:1",
            "a---b",
            &format!("web@{digest}"),
            &format!("r.example:443/web:1@{digest}"),
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_names_no_image_is_told_in_a_kubelets_words() {
        let format = "invalid reference format";
        let long = format!("{}/x", "a".repeat(250));
        let hex = "0a".repeat(32);
        for (name, fault) in [
            ("", format),
            (" web", format),
            ("web:", format),
            ("web:a b", format),
            ("web:1:2", format),
            ("-web", format),
            ("a___b", format),
            ("a..b", format),
            ("a/", format),
            ("/a", format),
            ("host:x/web", format),
            ("web@sha256:12", format),
            ("web\u{1b}[31m", format),
            (
                "team/Web:1",
                "invalid reference format: repository name (team/Web) must be lowercase",
            ),
            ("Web", "invalid reference format: repository name (library/Web) must be lowercase"),
            (&long, "repository name must not be more than 255 characters"),
            (
                &hex,
                &*format!(
                    "invalid repository name ({hex}), cannot specify 64-byte hexadecimal strings"
                ),
            ),
        ] {
            let message = check(name).expect_err(name);
            let head = "Failed to apply default image tag";
            let expected = format!("{head} {name:?}: couldn't parse image name {name:?}: {fault}");
            assert_eq!(message, expected);
        }
    }
}
