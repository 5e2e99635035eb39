//! Names of settings, addresses and nodes.

use proptest::prelude::*;

use super::*;

#[test]
fn a_variable_names_a_setting() {
    for (name, key) in [
        ("DATA", "data"),
        ("KAFKA", "kafka.brokers"),
        ("KAFKA_SASL_PASSWORD", "kafka.sasl.password"),
        ("KUBERNETES_ACT_AS", "kubernetes.act_as"),
        ("SYNC_INTERVAL", "sync_interval"),
    ] {
        assert_eq!(key_of_variable(name), key);
        assert_eq!(variable_of_key(key), format!("HEADWATER_{name}"));
    }
}

proptest! {
    #[test]
    fn any_text_is_an_address_of_metrics_or_is_named(
        text in prop_oneof!["[0-9a-f:.\\[\\]%]{0,24}", any::<String>()],
    ) {
        match text.parse::<MetricsAt>() {
            Ok(at) => prop_assert_eq!(at.to_string().parse(), Ok(at)),
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.contains(&format!("{text:?}")), "{}", message);
            }
        }
    }

    #[test]
    fn any_text_is_nodes_or_is_named(
        text in prop_oneof![
            "[0-9]{1,22}",
            "[a-z0-9.-]{1,8}(, ?[a-z0-9.-]{1,8}){0,3}",
            any::<String>(),
        ],
    ) {
        match node_names(&text) {
            Ok(nodes) => {
                prop_assert!(!nodes.is_empty() && nodes.len() <= NODES_MAX);
                let names: Vec<_> = nodes.iter().map(|node| node.as_str()).collect();
                let names = names.join(",");
                // Names like `7` are a number where they stand alone.
                if names.parse::<usize>().is_err() {
                    prop_assert_eq!(node_names(&names).ok(), Some(nodes));
                }
            }
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.contains(&format!("{text:?}")), "{}", message);
            }
        }
    }
}
