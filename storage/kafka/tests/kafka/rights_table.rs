//! The rights that each part needs of Kafka. The page, the file for Strimzi and the broker of the
//! test of rights are compared with this table.

use headwater_log::{DOWNSTREAM_TOPIC, POSITIONS_TOPIC, UPSTREAM_TOPIC};

/// The prefix of all names of topics and groups.
const PREFIX: &str = "headwater.";

/// The parts that have a Kafka user.
pub(crate) const PARTS: [&str; 2] = ["controller", "hub"];

/// The user of the commands `topics create` and `topics check`.
pub(crate) const ADMIN: &str = "admin";

/// A right of a user.
pub(crate) struct Right {
    pub(crate) user: &'static str,
    pub(crate) resource: Resource,
    /// By the names of the page and of Strimzi.
    pub(crate) operations: &'static [&'static str],
}

/// What a right is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Topic(&'static str),
    Topics,
    Groups,
    Cluster,
}

const fn right(
    user: &'static str,
    resource: Resource,
    operations: &'static [&'static str],
) -> Right {
    Right { user, resource, operations }
}

/// Every right, in the order of the page.
///
/// The controller appends to the upstream log too: it repairs keys and removes records that are
/// superseded.
pub(crate) const RIGHTS: [Right; 10] = [
    right("controller", Resource::Topic(DOWNSTREAM_TOPIC), &["Read", "Write", "DescribeConfigs"]),
    right("controller", Resource::Topic(UPSTREAM_TOPIC), &["Read", "Write", "DescribeConfigs"]),
    right("controller", Resource::Topic(POSITIONS_TOPIC), &["Read", "DescribeConfigs"]),
    right("hub", Resource::Topic(DOWNSTREAM_TOPIC), &["Read", "DescribeConfigs"]),
    right("hub", Resource::Topic(UPSTREAM_TOPIC), &["Read", "Write", "DescribeConfigs"]),
    right("hub", Resource::Topic(POSITIONS_TOPIC), &["Read", "Write", "DescribeConfigs"]),
    right(ADMIN, Resource::Topics, &["Create", "Describe", "DescribeConfigs"]),
    right(ADMIN, Resource::Cluster, &["DescribeConfigs"]),
    right("controller", Resource::Groups, &["Read"]),
    right("hub", Resource::Groups, &["Read"]),
];

impl Resource {
    /// The resource in a row of the page.
    pub(crate) fn on_page(self) -> String {
        match self {
            Self::Topic(topic) => format!("`{topic}`"),
            Self::Topics => format!("`{PREFIX}` (prefix)"),
            Self::Groups => format!("group `{PREFIX}` (prefix)"),
            Self::Cluster => "cluster".to_owned(),
        }
    }

    /// The resource of a rule for Strimzi: kind, name and type of pattern.
    pub(crate) fn for_strimzi(self) -> [&'static str; 3] {
        match self {
            Self::Topic(topic) => ["topic", topic, "literal"],
            Self::Topics => ["topic", PREFIX, "prefix"],
            Self::Groups => ["group", PREFIX, "prefix"],
            Self::Cluster => ["cluster", "", ""],
        }
    }

    /// Kind and name of the resource as a broker takes them; a name that ends with `*` is a prefix.
    fn for_broker(self) -> [&'static str; 2] {
        match self {
            Self::Topic(topic) => ["TOPIC", topic],
            Self::Topics => ["TOPIC", "headwater.*"],
            Self::Groups => ["GROUP", "headwater.*"],
            Self::Cluster => ["CLUSTER", "kafka-cluster"],
        }
    }
}

impl Right {
    /// The rules of a broker: principal, operation, kind of resource and its name.
    pub(crate) fn for_broker(&self) -> impl Iterator<Item = [String; 4]> {
        let [kind, name] = self.resource.for_broker().map(str::to_owned);
        self.operations.iter().map(move |operation| {
            let principal = format!("User:{}", self.user);
            [principal, broker_name(operation), kind.clone(), name.clone()]
        })
    }
}

/// The name of an operation as a broker takes it: `DESCRIBE_CONFIGS` for `DescribeConfigs`.
fn broker_name(operation: &str) -> String {
    let mut name = String::new();
    for letter in operation.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
