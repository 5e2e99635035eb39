//! What clients of a Kubernetes API depend on, as cases that a real server and the one in memory both
//! pass. Where the two differ, the one in memory is wrong.

mod api;
mod deletes;
mod lists;
mod patches;
mod watches;
mod writes;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use headwater_apiserver::ApiServer;
use headwater_cluster::{ControlPlane, ControlPlaneSettings, Part};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, SeedableRng as _};

use self::api::Api;
use crate::world::only_api;

/// A case: its name, and what it does in a namespace of its own.
type Case = (&'static str, fn(Api) -> BoxFuture<'static, ()>);

/// The cases of a module.
macro_rules! cases {
    ($($module:ident::$name:ident),* $(,)?) => {
        [$((stringify!($name), |api| Box::pin($module::$name(api)))),*]
    };
}

const CASES: [Case; 32] = cases![
    writes::a_new_object_has_an_identity,
    writes::a_create_that_cannot_be_is_refused,
    writes::a_generated_name_begins_with_its_prefix,
    writes::an_update_needs_the_version_that_it_names,
    writes::an_update_of_another_object_is_refused,
    writes::a_write_that_changes_nothing_keeps_the_version,
    writes::spec_and_status_of_a_pod_are_apart,
    writes::a_node_is_created_with_its_status,
    writes::the_spec_of_a_pod_is_fixed_but_for_tolerations,
    writes::the_status_of_a_pod_goes_forward,
    writes::rights_tokens_and_versions_are_answered,
    writes::what_is_not_served_is_not_found,
    patches::a_lease_is_renewed_by_a_merge_patch,
    patches::a_patch_of_another_object_is_refused,
    patches::conditions_are_merged_by_type,
    patches::addresses_are_replaced_by_a_directive,
    patches::a_patch_of_an_unknown_form_is_refused,
    deletes::an_object_goes_at_once,
    deletes::a_pod_of_no_node_goes_at_once,
    deletes::a_bound_pod_goes_after_its_grace,
    deletes::a_delete_needs_what_it_names,
    deletes::a_finalizer_holds_an_object,
    deletes::a_finalizer_holds_a_pod_whose_grace_is_over,
    lists::pages_are_of_one_version,
    lists::selectors_select,
    lists::versions_of_lists_mean_what_they_say,
    lists::a_token_expires,
    watches::a_watch_follows_a_version,
    watches::what_leaves_a_selection_is_deleted,
    watches::bookmarks_come_before_the_end,
    watches::a_short_watch_reaches_the_version_of_an_empty_list_before_it,
    watches::versions_of_watches_mean_what_they_say,
];

/// Runs all cases, `at_once` of them side by side, and names those that fail.
async fn run(client: Client, at_once: usize, forget: Arc<dyn Fn() + Send + Sync>) {
    let runs = CASES.iter().map(|(name, case)| {
        let (client, forget) = (client.clone(), forget.clone());
        async move {
            let api = Api::new(client, name, forget).await;
            let end = AssertUnwindSafe(case(api)).catch_unwind().await;
            end.is_err().then_some(*name)
        }
    });
    let results = stream::iter(runs).buffered(at_once).collect::<Vec<_>>();
    let failed: Vec<&str> = results.await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} of {} cases failed: {failed:#?}", failed.len(), CASES.len());
}

#[tokio::test(start_paused = true)]
async fn the_server_in_memory_passes() {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
    let server = ApiServer::new(|| 1_700_000_000_000, move || chance.next_u64());
    let forgetful = server.clone();
    // One by one: what one of them has forgotten another would miss.
    run(Client::new(server, "default"), 1, Arc::new(move || forgetful.compact())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_passes() {
    // It forgets what is older than that, once in so long: later than a case goes from a page to the next.
    let flags = ["--etcd-compaction-interval=10s".to_owned()].to_vec();
    let settings = ControlPlaneSettings { flags: [(Part::ApiServer, flags)].into(), ..only_api() };
    let mut cluster = ControlPlane::start(settings).expect("a control plane");
    // A server that starts on data has no history from before.
    cluster.part(Part::ApiServer).kill().expect("it can be killed");
    cluster.part(Part::ApiServer).start().expect("it starts again");
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a cluster");
    // A refusal is not sent again.
    config.default_retry = false;
    let client = Client::try_from(config).expect("a client");
    run(client, CASES.len(), Arc::new(|| ())).await;
}
