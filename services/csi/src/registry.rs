//! The storage drivers of the node, and the rules by which a plugin becomes one (`pkg/volume/csi` of Kubernetes). Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::layout::check_driver_name;
use crate::proto::NodeGetInfoResponse;
use crate::proto::registration::PluginInfo;

/// The type of plugins that are storage drivers.
const CSI_PLUGIN: &str = "CSIPlugin";

/// The longest name of a node (CSI specification, `NodeGetInfo`).
const NODE_ID_BYTES_MAX: usize = 256;

/// The most segments of a node's place, and the longest key or value of one: those of a label.
const SEGMENTS_MAX: usize = 16;
const SEGMENT_BYTES_MAX: usize = 317;

/// Drivers of a node. A person installs each.
const DRIVERS_MAX: usize = 64;

/// A driver of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The socket of its calls.
    pub endpoint: PathBuf,
    /// The socket by which it has registered.
    pub registered_at: PathBuf,
    /// Its highest version.
    pub version: Version,
    /// Its name of the node.
    pub node_id: String,
    /// The number of its volumes that the node has room for.
    pub volumes_max: Option<u32>,
    /// Where the node is, in its terms.
    pub topology: BTreeMap<String, String>,
}

/// A version of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u32; 3]);

/// A plugin that says of itself that it is a storage driver, and may be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// The socket of its calls.
    pub endpoint: PathBuf,
    /// Its highest version.
    pub version: Version,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Registry(BTreeMap<String, Driver>);

impl Candidate {
    /// The driver that a plugin with this registration socket says it is.
    ///
    /// # Errors
    /// Why it is none, in words for its own log.
    pub fn of(info: PluginInfo, socket: &Path) -> Result<Self, String> {
        let PluginInfo { r#type, name, endpoint, supported_versions } = info;
        if r#type != CSI_PLUGIN {
            let kind: String = r#type.chars().take(64).collect();
            return Err(format!(
                "no handler registered for plugin type: {kind:?} at socket {}",
                socket.display()
            ));
        }
        check_driver_name(&name)?;
        if supported_versions.is_empty() {
            return Err(format!(
                "CSI driver {name:?}: the plugin returned an empty list for supported versions"
            ));
        }
        let versions = supported_versions.iter().filter_map(|text| Version::of(text));
        // A later major version need not be compatible, and the first one is no more.
        let version = versions.filter(|version| version.0[0] == 1).max();
        let version = version.ok_or_else(|| {
            let some = supported_versions.iter().take(8);
            let some: Vec<_> = some.map(|text| text.chars().take(32).collect::<String>()).collect();
            format!("CSI driver {name:?}: none of the versions {some:?} is supported: 1.x is")
        })?;
        let endpoint =
            if endpoint.is_empty() { socket.to_owned() } else { PathBuf::from(endpoint) };
        if !endpoint.is_absolute() {
            return Err(format!("CSI driver {name:?}: its endpoint is no absolute path"));
        }
        Ok(Self { name, endpoint, version })
    }

    /// The driver, with what it says of the node.
    ///
    /// # Errors
    /// What it says of the node is nothing.
    pub fn driver(&self, node: &NodeGetInfoResponse, socket: &Path) -> Result<Driver, String> {
        let id = &node.node_id;
        if id.is_empty() || id.len() > NODE_ID_BYTES_MAX {
            return Err(format!(
                "CSI driver {:?}: its name of the node has {} bytes: 1 to {NODE_ID_BYTES_MAX} are \
                 allowed",
                self.name,
                id.len()
            ));
        }
        let topology = node.accessible_topology.clone().unwrap_or_default().segments;
        let is_long = |text: &String| text.len() > SEGMENT_BYTES_MAX;
        if topology.len() > SEGMENTS_MAX
            || topology.iter().any(|(key, value)| is_long(key) || is_long(value))
        {
            return Err(format!(
                "CSI driver {:?}: its topology has more than {SEGMENTS_MAX} segments, or one of more than \
                 {SEGMENT_BYTES_MAX} bytes",
                self.name
            ));
        }
        Ok(Driver {
            endpoint: self.endpoint.clone(),
            registered_at: socket.to_owned(),
            version: self.version,
            node_id: id.clone(),
            // Zero and less: the driver sets no limit.
            volumes_max: u32::try_from(node.max_volumes_per_node).ok().filter(|max| *max > 0),
            topology: topology.into_iter().collect(),
        })
    }
}

impl Registry {
    /// Checks whether the driver can be registered by this socket: another one of its name may be there.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self, candidate: &Candidate, socket: &Path) -> Result<(), String> {
        let Candidate { name, version, .. } = candidate;
        match self.0.get(name) {
            Some(other) if other.registered_at != socket && other.version >= *version => {
                Err(format!(
                    "CSI driver {name:?}: another driver with the same name is already registered with \
                     the version {}",
                    other.version
                ))
            }
            None if self.0.len() >= DRIVERS_MAX => {
                Err(format!("CSI driver {name:?}: the node has {DRIVERS_MAX} drivers already"))
            }
            _ => Ok(()),
        }
    }

    /// Registers a driver that was checked.
    pub fn insert(&mut self, name: String, driver: Driver) {
        self.0.insert(name, driver);
    }

    /// Removes the driver that has registered by this socket, if there is one.
    pub fn remove_at(&mut self, socket: &Path) -> Option<String> {
        let (name, _) = self.0.iter().find(|(_, driver)| driver.registered_at == socket)?;
        let name = name.clone();
        self.0.remove(&name);
        Some(name)
    }

    /// The driver of this name.
    pub fn get(&self, name: &str) -> Option<&Driver> {
        self.0.get(name)
    }

    /// All drivers, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Driver)> {
        self.0.iter().map(|(name, driver)| (name.as_str(), driver))
    }
}

impl Version {
    fn of(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts = text.split('.');
        let mut numbers = [0; 3];
        for number in &mut numbers {
            match parts.next() {
                Some(part) => *number = part.parse().ok()?,
                None => break,
            }
        }
        parts.next().is_none().then_some(Self(numbers))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Topology;

    fn info(name: &str, versions: &[&str]) -> PluginInfo {
        PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            name: name.to_owned(),
            endpoint: "/run/csi.sock".to_owned(),
            supported_versions: versions.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    fn candidate(versions: &[&str], socket: &str) -> Result<Candidate, String> {
        Candidate::of(info("disk.example.com", versions), Path::new(socket))
    }

    #[test]
    fn a_plugin_is_a_driver_by_its_type_name_and_version() {
        let found = candidate(&["0.3.0", "1.0.0", "v1.9", "2.0.0"], "/r/a").expect("a driver");
        assert_eq!((found.version, found.endpoint), (Version([1, 9, 0]), "/run/csi.sock".into()));
        for (info, word) in [
            (
                PluginInfo { r#type: "DevicePlugin".to_owned(), ..info("d", &["1.0.0"]) },
                "DevicePlugin",
            ),
            (info("../up", &["1.0.0"]), "no name"),
            (info("kubernetes.io/csi", &["1.0.0"]), "reserved"),
            (info("d", &[]), "empty list"),
            (info("d", &["0.3.0", "2.0.0", "1.x", "1.0.0.0"]), "is supported"),
            (PluginInfo { endpoint: "csi.sock".to_owned(), ..info("d", &["1.0.0"]) }, "absolute"),
        ] {
            let why = Candidate::of(info, Path::new("/r/a")).expect_err(word);
            assert!(why.contains(word), "{why}");
        }
        let own = PluginInfo { endpoint: String::new(), ..info("d", &["1.0.0"]) };
        let own = Candidate::of(own, Path::new("/r/a")).expect("a driver");
        assert_eq!(own.endpoint, Path::new("/r/a"));
    }

    #[test]
    fn a_second_driver_of_a_name_is_refused_unless_its_version_is_higher() {
        let mut registry = Registry::default();
        let node = NodeGetInfoResponse { node_id: "n".to_owned(), ..Default::default() };
        let first = candidate(&["1.5.0"], "/r/a").expect("a driver");
        let driver = first.driver(&node, Path::new("/r/a")).expect("a node");
        registry.insert(first.name.clone(), driver);
        registry.check(&first, Path::new("/r/a")).expect("it comes again");
        for version in ["1.4.0", "1.5.0"] {
            let other = candidate(&[version], "/r/b").expect("a driver");
            let why = registry.check(&other, Path::new("/r/b")).expect_err(version);
            assert!(why.contains("disk.example.com") && why.contains("1.5.0"), "{why}");
        }
        let higher = candidate(&["1.6.0"], "/r/b").expect("a driver");
        registry.check(&higher, Path::new("/r/b")).expect("it replaces the first one");
        registry.insert(higher.name.clone(), higher.driver(&node, Path::new("/r/b")).expect("ok"));
        assert_eq!(registry.remove_at(Path::new("/r/a")), None, "the other one stays");
        assert_eq!(registry.remove_at(Path::new("/r/b")).as_deref(), Some("disk.example.com"));
        assert!(registry.get("disk.example.com").is_none());
    }

    #[test]
    fn a_driver_has_a_name_of_the_node() {
        let candidate = candidate(&["1.0.0"], "/r/a").expect("a driver");
        let of = |node_id: String, max| {
            let node =
                NodeGetInfoResponse { node_id, max_volumes_per_node: max, ..Default::default() };
            candidate.driver(&node, Path::new("/r/a"))
        };
        of(String::new(), 0).expect_err("no name");
        of("n".repeat(NODE_ID_BYTES_MAX + 1), 0).expect_err("too long");
        assert_eq!(of("n".to_owned(), -3).expect("no limit").volumes_max, None);
        assert_eq!(of("n".to_owned(), 7).expect("a limit").volumes_max, Some(7));
    }

    #[test]
    fn a_driver_says_where_the_node_is_within_bounds() {
        let candidate = candidate(&["1.0.0"], "/r/a").expect("a driver");
        let of = |segments: Vec<(String, String)>| {
            let accessible_topology = Some(Topology { segments: segments.into_iter().collect() });
            let node_id = "n".to_owned();
            let node = NodeGetInfoResponse { node_id, accessible_topology, ..Default::default() };
            candidate.driver(&node, Path::new("/r/a")).map(|driver| driver.topology)
        };
        let rack = ("disk.example.com/rack".to_owned(), "r1".to_owned());
        assert_eq!(of(vec![rack.clone()]), Ok(BTreeMap::from([rack.clone()])));
        of(vec![(rack.0, "r".repeat(SEGMENT_BYTES_MAX + 1))]).expect_err("a long value");
        let many = (0..=SEGMENTS_MAX).map(|key| (key.to_string(), String::new())).collect();
        of(many).expect_err("too many");
    }
}
