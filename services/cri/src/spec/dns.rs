//! The resolver of a pod: a kubelet's merge of the node's, the cluster's and the pod's own
//! (`pkg/kubelet/network/dns/dns.go`).

use k8s_openapi::api::core::v1::{Pod, PodDNSConfigOption};

use super::{NodeFacts, spec};
use crate::proto::DnsConfig;

/// Name servers that glibc takes (`MAXNS`).
const SERVERS_MAX: usize = 3;

/// Domains of the search list (`MaxDNSSearchPaths` of the Kubernetes API).
const SEARCHES_MAX: usize = 32;

/// Characters of the search list (`MaxDNSSearchListChars`).
const SEARCH_CHARACTERS_MAX: usize = 2048;

/// Characters of one domain: with more of them some resolvers abort.
const DOMAIN_CHARACTERS_MAX: usize = 253;

/// The options of a pod that asks the cluster's name servers.
const CLUSTER_OPTIONS: [&str; 1] = ["ndots:5"];

/// A resolver's configuration, as resolv.conf(5) has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// The name servers.
    pub servers: Vec<String>,
    /// The search list.
    pub searches: Vec<String>,
    /// The options.
    pub options: Vec<String>,
}

impl ResolvConf {
    /// Reads a resolv.conf. Name servers add up; of several search lists or options the last one counts.
    pub fn parse(text: &str) -> Self {
        let mut conf = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => conf.servers.extend(words.next().map(str::to_owned)),
                Some("search") => {
                    let domain = |word: &str| match word {
                        "." => ".".to_owned(),
                        word => word.strip_suffix('.').unwrap_or(word).to_owned(),
                    };
                    conf.searches = words.map(domain).collect();
                }
                Some("options") => conf.options = words.map(str::to_owned).collect(),
                _ => {}
            }
        }
        conf
    }
}

/// The resolver of a pod.
pub(super) fn dns_config(pod: &Pod, namespace: &str, node: &NodeFacts) -> DnsConfig {
    let spec = spec(pod);
    let is_host_network = spec.host_network == Some(true);
    let asks_cluster = match spec.dns_policy.as_deref() {
        Some("None" | "Default") => false,
        Some("ClusterFirstWithHostNet") => true,
        _ => !is_host_network,
    };
    let mut conf = match spec.dns_policy.as_deref() {
        Some("None") => ResolvConf::default(),
        _ if asks_cluster && !node.cluster_dns.is_empty() => of_cluster(namespace, node),
        _ => node.resolv_conf.clone(),
    };
    if let Some(own) = &spec.dns_config {
        conf.servers.extend(own.nameservers.iter().flatten().cloned());
        conf.searches.extend(own.searches.iter().flatten().cloned());
        set_options(&mut conf.options, own.options.iter().flatten());
    }
    conf.servers = without_repeats(conf.servers);
    conf.servers.truncate(SERVERS_MAX);
    DnsConfig {
        servers: conf.servers,
        searches: bounded(without_repeats(conf.searches)),
        options: conf.options,
    }
}

fn of_cluster(namespace: &str, node: &NodeFacts) -> ResolvConf {
    let domain = &node.cluster_domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        searches.extend([
            format!("{namespace}.svc.{domain}"),
            format!("svc.{domain}"),
            domain.clone(),
        ]);
    }
    searches.extend(node.resolv_conf.searches.iter().cloned());
    ResolvConf {
        servers: node.cluster_dns.iter().map(ToString::to_string).collect(),
        searches,
        options: CLUSTER_OPTIONS.map(str::to_owned).into(),
    }
}

/// Adds options. One of the same name takes the place of the one before.
fn set_options<'o>(options: &mut Vec<String>, own: impl Iterator<Item = &'o PodDNSConfigOption>) {
    for option in own {
        let Some(name) = option.name.as_deref().filter(|name| !name.is_empty()) else { continue };
        let text = match option.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => format!("{name}:{value}"),
            None => name.to_owned(),
        };
        let named = |before: &&mut String| before.split(':').next() == Some(name);
        match options.iter_mut().find(named) {
            Some(before) => *before = text,
            None => options.push(text),
        }
    }
}

fn without_repeats(texts: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}

/// The longest beginning of a search list that every resolver takes.
fn bounded(searches: Vec<String>) -> Vec<String> {
    let mut characters = 0_usize;
    searches
        .into_iter()
        .take(SEARCHES_MAX)
        .filter(|domain| domain.len() <= DOMAIN_CHARACTERS_MAX)
        .take_while(|domain| {
            characters += domain.len() + usize::from(characters > 0);
            characters <= SEARCH_CHARACTERS_MAX
        })
        .collect()
}
