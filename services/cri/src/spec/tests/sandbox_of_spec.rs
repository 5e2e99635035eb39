//! Sandboxes by the fields of their pods.

use std::net::IpAddr;

use super::*;
use crate::proto::{NamespaceMode, NamespaceOption, Protocol, SupplementalGroupsPolicy};

fn of(spec: Value, container: Value) -> PodSandboxConfig {
    sandbox(&pod(spec, container), &node()).expect("it can be had")
}

#[test]
fn a_plain_pod_is_asked_for_as_a_kubelet_asks() {
    let config = of(json!({}), json!({}));
    let metadata = config.metadata.clone().expect("metadata");
    assert_eq!(
        (metadata.name, metadata.namespace, metadata.uid, metadata.attempt),
        ("web".to_owned(), "shop".to_owned(), "u1".to_owned(), 2)
    );
    assert_eq!(config.hostname, "web");
    assert_eq!(config.log_directory, "/var/log/pods/shop_web_u1");
    assert_eq!(config.port_mappings, []);
    for (name, value) in [
        ("app", "web"),
        ("io.kubernetes.pod.name", "web"),
        ("io.kubernetes.pod.namespace", "shop"),
        // A pod does not pass for another one.
        ("io.kubernetes.pod.uid", "u1"),
        ("headwater/node", "gw-1"),
        ("headwater/dir", "/data/edged"),
    ] {
        assert_eq!(config.labels[name], value, "{name}");
    }
    assert_eq!(config.annotations["note"], "x");
    let linux = config.linux.expect("linux");
    assert_eq!(linux.cgroup_parent, "/headwater/besteffort/podu1");
    let security = linux.security_context.expect("a security context");
    assert!(!security.privileged);
    assert_eq!(security.seccomp.expect("a profile").profile_type, 0, "the runtime's own");
    let without = NodeFacts { cgroup_driver: None, ..node() };
    let config = sandbox(&pod(json!({}), json!({})), &without).expect("it can be had");
    assert_eq!(config.linux.expect("linux").cgroup_parent, "", "the runtime decides");
}

#[test]
fn a_pods_hostname_is_its_own_and_empty_in_the_hosts_network() {
    let long = "a".repeat(62) + ".b";
    for (spec, hostname) in [
        (json!({"hostname": "db-0"}), "db-0"),
        (json!({"hostNetwork": true, "hostname": "db-0"}), ""),
        (json!({"hostname": "db-0", "subdomain": "db"}), "db-0"),
        (
            json!({"hostname": "db-0", "subdomain": "db", "setHostnameAsFQDN": true}),
            "db-0.db.shop.svc.cluster.local",
        ),
        (json!({"setHostnameAsFQDN": true}), "web"),
        (
            json!({"hostname": "a", "subdomain": "b", "hostnameOverride": "db.example.org"}),
            "db.example.org",
        ),
    ] {
        assert_eq!(of(spec.clone(), json!({})).hostname, hostname, "{spec}");
    }
    let mut record = record();
    record.key = format!("shop/pod/{long}").parse().expect("a key");
    let config = sandbox_config(&pod(json!({}), json!({})), &record, 0, &node());
    assert_eq!(config.expect("it can be had").hostname, "a".repeat(62), "shortened to a name");
    let full = json!({"hostname": "a".repeat(40), "subdomain": "b", "setHostnameAsFQDN": true});
    let overlong = json!({"hostnameOverride": format!("{}.bc", "a".repeat(62))});
    let empty = json!({"hostnameOverride": "a..b"});
    for bad in [json!({"hostname": "A.b"}), json!({"subdomain": "-b"}), full, overlong, empty] {
        sandbox(&pod(bad.clone(), json!({})), &node()).expect_err(&bad.to_string());
    }
}

#[test]
fn namespaces_follow_the_pod() {
    use NamespaceMode::{Container, Node, Pod};
    let namespaces = |spec: Value| {
        let linux = of(spec, json!({})).linux.expect("linux");
        let found = linux.security_context.and_then(|it| it.namespace_options);
        let NamespaceOption { network, pid, ipc, userns_options, .. } = found.expect("namespaces");
        let users = userns_options.expect("as a kubelet states it");
        assert_eq!((users.mode(), users.uids, users.gids), (Node, vec![], vec![]));
        [network, pid, ipc].map(|mode| NamespaceMode::try_from(mode).expect("a mode"))
    };
    for (spec, wanted) in [
        (json!({}), [Pod, Container, Pod]),
        (json!({"shareProcessNamespace": true}), [Pod, Pod, Pod]),
        (json!({"hostNetwork": true, "hostPID": true, "hostIPC": true}), [Node, Node, Node]),
    ] {
        assert_eq!(namespaces(spec.clone()), wanted, "{spec}");
    }
}

#[test]
fn a_sandbox_is_privileged_if_a_container_is_and_has_the_pods_users() {
    let spec = json!({"securityContext": {
        "runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 2000, "supplementalGroups": [7],
    }});
    let config = of(spec, json!({"securityContext": {"privileged": true, "runAsUser": 5}}));
    let security = config.linux.and_then(|linux| linux.security_context).expect("a context");
    assert!(security.privileged);
    assert_eq!(security.run_as_user.map(|id| id.value), Some(1000));
    assert_eq!(security.run_as_group.map(|id| id.value), Some(1001));
    assert_eq!(security.supplemental_groups, [2000, 7]);
    assert_eq!(security.supplemental_groups_policy, i32::from(SupplementalGroupsPolicy::Merge));
    let init = json!({"initContainers": [{"name": "i", "securityContext": {"privileged": true}}]});
    let linux = of(init, json!({})).linux.expect("linux");
    assert!(linux.security_context.expect("a context").privileged);
}

#[test]
fn ports_of_the_host_are_forwarded_once() {
    let ports = json!([
        {"name": "http", "containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"},
        {"name": "http", "containerPort": 81},
        {"containerPort": 53, "protocol": "UDP"},
        {"containerPort": 53, "protocol": "UDP"},
        {"containerPort": 53},
    ]);
    let config = of(json!({}), json!({"ports": ports}));
    let found: Vec<_> = config
        .port_mappings
        .iter()
        .map(|it| (it.protocol, it.container_port, it.host_port, it.host_ip.as_str()))
        .collect();
    let (tcp, udp) = (i32::from(Protocol::Tcp), i32::from(Protocol::Udp));
    assert_eq!(found, [(tcp, 80, 8080, "127.0.0.1"), (udp, 53, 0, ""), (tcp, 53, 0, "")]);
    let sidecar = json!({"initContainers": [
        {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 2}]},
        {"name": "i", "ports": [{"containerPort": 3, "hostPort": 4}]},
    ]});
    let found = of(sidecar, json!({})).port_mappings;
    assert_eq!(found.iter().map(|it| it.host_port).collect::<Vec<_>>(), [2]);
    let shared = json!({"hostNetwork": true});
    assert_eq!(
        of(shared, json!({"ports": [{"containerPort": 1, "hostPort": 1}]})).port_mappings,
        []
    );
}

#[test]
fn the_resolver_merges_the_node_the_cluster_and_the_pod() {
    let cluster = NodeFacts {
        cluster_dns: vec!["10.96.0.10".parse::<IpAddr>().expect("an address")],
        ..node()
    };
    let own = json!({
        "nameservers": ["1.1.1.1", "10.0.0.1"],
        "searches": ["own.example", "site.example"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}, {"value": "nameless"}],
    });
    let in_cluster = "shop.svc.cluster.local svc.cluster.local cluster.local site.example";
    for (node, spec, servers, searches, options) in [
        (&node(), json!({}), "10.0.0.1", "site.example", "rotate"),
        (&node(), json!({"dnsPolicy": "None"}), "", "", ""),
        (&cluster, json!({}), "10.96.0.10", in_cluster, "ndots:5"),
        (&cluster, json!({"dnsPolicy": "Default"}), "10.0.0.1", "site.example", "rotate"),
        (&cluster, json!({"hostNetwork": true}), "10.0.0.1", "site.example", "rotate"),
        (
            &cluster,
            json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
            "10.96.0.10",
            in_cluster,
            "ndots:5",
        ),
        (
            &cluster,
            json!({"dnsPolicy": "ClusterFirst", "dnsConfig": own}),
            "10.96.0.10 1.1.1.1 10.0.0.1",
            &format!("{in_cluster} own.example"),
            "ndots:2 edns0",
        ),
        (
            &node(),
            json!({"dnsPolicy": "None", "dnsConfig": own}),
            "1.1.1.1 10.0.0.1",
            "own.example site.example",
            "ndots:2 edns0",
        ),
    ] {
        let config = sandbox(&pod(spec.clone(), json!({})), node).expect("it can be had");
        let dns = config.dns_config.expect("a resolver");
        let found = [dns.servers, dns.searches, dns.options].map(|texts| texts.join(" "));
        assert_eq!(found, [servers, searches, options], "{spec}");
    }
}

#[test]
fn a_resolver_has_no_more_than_resolvers_take() {
    let texts = |count: usize, of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<Vec<_>>();
    let own = json!({
        "nameservers": texts(9, &|at| format!("10.1.0.{at}")),
        "searches": texts(40, &|at| format!("{at}.{}", "x".repeat(if at == 1 { 300 } else { 90 }))),
    });
    let spec = json!({"dnsPolicy": "None", "dnsConfig": own});
    let dns = of(spec, json!({})).dns_config.expect("a resolver");
    assert_eq!(dns.servers, ["10.1.0.0", "10.1.0.1", "10.1.0.2"]);
    let line = dns.searches.join(" ");
    assert!(line.len() <= 2048 && line.len() > 1900, "{}", line.len());
    assert!(dns.searches.iter().all(|domain| domain.len() <= 253));
}

#[test]
fn a_resolv_conf_is_read_as_a_resolver_reads_it() {
    let conf = ResolvConf::parse(
        "# a comment\nnameserver 1.1.1.1\nnameserver\nnameserver 2.2.2.2 # x\nsearch a. b\nsearch c. .\n\
         options ndots:1\noptions timeout:2 edns0\ndomain d\n",
    );
    assert_eq!(conf.servers, ["1.1.1.1", "2.2.2.2"]);
    assert_eq!(conf.searches, ["c", "."]);
    assert_eq!(conf.options, ["timeout:2", "edns0"]);
}

#[test]
fn safe_sysctls_are_set_and_the_others_need_the_nodes_word() {
    let with = |name: &str, spec: Value, node: &NodeFacts| {
        let mut spec = spec;
        spec["securityContext"] = json!({"sysctls": [{"name": name, "value": "1"}]});
        let config = sandbox(&pod(spec, json!({})), node)?;
        let sysctls = config.linux.expect("linux").sysctls;
        Ok::<_, String>(sysctls.into_iter().collect::<Vec<_>>())
    };
    let set = |name: &str| Ok(vec![(name.to_owned(), "1".to_owned())]);
    let lax = NodeFacts {
        allowed_sysctls: ["kernel.msg*", "net.core.somaxconn", "vm.swappiness"]
            .map(str::to_owned)
            .into(),
        ..node()
    };
    for safe in ["kernel.shm_rmid_forced", "net.ipv4.tcp_syncookies"] {
        assert_eq!(with(safe, json!({}), &node()), set(safe));
    }
    let slashes = with("net/ipv4/tcp_syncookies", json!({}), &node());
    assert_eq!(slashes, set("net.ipv4.tcp_syncookies"));
    assert_eq!(with("kernel.msgmax", json!({}), &lax), set("kernel.msgmax"));
    assert_eq!(with("net.core.somaxconn", json!({}), &lax), set("net.core.somaxconn"));
    for (name, spec, why) in [
        ("kernel.msgmax", json!({}), "not safe"),
        ("vm.swappiness", json!({}), "not safe"),
        ("", json!({}), "not safe"),
        ("net.ipv4.tcp_syncookies", json!({"hostNetwork": true}), "hostNetwork"),
        ("kernel.shm_rmid_forced", json!({"hostIPC": true}), "hostIPC"),
    ] {
        let refused = with(name, spec, &node()).expect_err(name);
        assert!(refused.starts_with("spec.securityContext.sysctls[0]: "), "{refused}");
        assert!(refused.contains(why), "{refused}");
    }
    let refused = with("vm.swappiness", json!({}), &lax).expect_err("of the whole machine");
    assert!(refused.contains("no namespace"), "{refused}");
}

#[test]
fn a_node_allows_what_a_pod_can_have_for_itself() {
    let allowed = allowed_sysctls(" kernel.msg*, net/core/somaxconn,,net.*").expect("they can be");
    assert_eq!(allowed, ["kernel.msg*", "net.core.somaxconn", "net.*"]);
    assert_eq!(allowed_sysctls(""), Ok(Vec::new()));
    for word in ["vm.swappiness", "kernel.*", "*", "net.*.forwarding", "net.ipv4 x", "net"] {
        let refused = allowed_sysctls(&format!("net.*,{word}")).expect_err(word).to_string();
        assert!(refused.contains(&format!("{word:?} cannot be allowed")), "{refused}");
    }
}

#[test]
fn the_hosts_file_has_the_pods_names_or_the_hosts_lines() {
    let addresses = ["10.4.0.2".parse().expect("an address"), "fd00::2".parse().expect("one")];
    let of = |spec: Value| {
        let pod = pod(spec, json!({}));
        hosts_file(&pod, &record(), &addresses, "10.0.0.9\tgateway", &node())
            .expect("it can be had")
    };
    let aliases = json!([
        {"ip": "1.2.3.4", "hostnames": ["a", "b"]},
        {"ip": "not one", "hostnames": ["c"]},
        {"ip": "5.6.7.8", "hostnames": ["d\n9.9.9.9 evil", "e"]},
    ]);
    let own = of(json!({"subdomain": "db", "hostAliases": aliases}));
    for line in [
        "127.0.0.1\tlocalhost\n",
        "10.4.0.2\tweb.db.shop.svc.cluster.local\tweb\n",
        "fd00::2\tweb.db.shop.svc.cluster.local\tweb\n",
        "# Entries added by HostAliases.\n1.2.3.4\ta\tb\n5.6.7.8\te\n",
    ] {
        assert!(own.contains(line), "{line:?}: {own}");
    }
    assert!(!own.contains("evil") && !own.contains("gateway"), "{own}");
    assert!(of(json!({})).ends_with("10.4.0.2\tweb\nfd00::2\tweb\n"));
    let shared = of(json!({"hostNetwork": true}));
    assert!(shared.ends_with("10.0.0.9\tgateway\n") && !shared.contains("10.4.0.2"), "{shared}");
}
