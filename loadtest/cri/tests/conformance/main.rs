//! What each call of CRI answers in each state: one suite holds the twin and a real containerd to the
//! same.

mod bench;
mod containers;
mod events;
mod exec;
mod images;
mod names;
mod sandboxes;
mod stopping;

use headwater_cri_lab::{
    BUSYBOX_IMAGE, Containerd, ContainerdSettings, ContainerdVersion, Image, Login, PAUSE_IMAGE,
    PullOutcome, Twin,
};

use crate::bench::{Bench, Registries};

/// Runs every case, one after the other; each has a pod of its own.
macro_rules! run {
    ($bench:expr, $($module:ident::$case:ident,)*) => {
        $(
            eprintln!("case {}::{}", stringify!($module), stringify!($case));
            $module::$case(&$bench.case(stringify!($case))).await;
        )*
    };
}

async fn conforms(bench: &Bench) {
    run!(
        bench,
        sandboxes::a_sandbox_is_listed_by_label_and_has_its_metadata,
        sandboxes::an_unknown_sandbox,
        sandboxes::a_stopped_sandbox_takes_no_container,
        sandboxes::a_stopped_sandbox_ends_its_containers,
        sandboxes::a_removed_sandbox_takes_its_containers_along,
        sandboxes::a_pod_network_gives_an_address,
        sandboxes::an_unknown_handler_is_refused,
        names::a_name_of_a_sandbox_is_reserved,
        names::a_name_of_a_container_is_reserved,
        names::another_attempt_is_another_name,
        containers::a_container_is_created_runs_and_ends,
        containers::a_container_without_its_image_is_refused_and_its_name_is_free,
        containers::an_unknown_container,
        containers::a_container_starts_once,
        containers::a_missing_program_ends_the_container_with_128,
        containers::a_container_killed_for_memory_says_so,
        containers::containers_are_listed_by_sandbox_and_label,
        stopping::a_stop_ends_what_takes_the_signal,
        stopping::a_stop_kills_at_its_deadline,
        stopping::a_stop_without_time_kills,
        stopping::a_stop_without_time_cuts_a_longer_one_short,
        stopping::a_stop_of_what_does_not_run_is_done,
        stopping::a_removal_kills,
        exec::an_exec_has_the_exit_code,
        exec::an_exec_ends_at_its_timeout,
        exec::an_exec_of_a_missing_program_fails,
        exec::an_exec_needs_a_running_container,
        images::an_absent_image_is_no_error,
        images::a_pull_succeeds_or_says_why,
        images::an_image_is_known_by_its_id,
        images::a_removed_image_is_absent,
        events::an_end_comes_as_an_event,
        events::a_kill_for_memory_comes_before_the_end,
        events::cris_own_events_are_those_of_containerd_2,
    );
}

#[tokio::test]
async fn the_twin_conforms() {
    let scratch = tempfile::tempdir().expect("a folder");
    let twin = Twin::start(&scratch.path().join("cri.sock")).expect("a twin");
    twin.add_image(PAUSE_IMAGE);
    twin.add_image(BUSYBOX_IMAGE);
    let registries = Registries::default();
    twin.set_pull(&registries.good, PullOutcome::Pulled);
    twin.set_pull(&registries.away, PullOutcome::Away);
    twin.set_pull(&registries.closed, PullOutcome::Refused);
    let version = ContainerdVersion::Installed;
    conforms(&Bench::new(twin.socket(), scratch.path(), "/twin".to_owned(), version)).await;
}

#[tokio::test]
async fn the_installed_containerd_conforms() {
    containerd_conforms(ContainerdVersion::Installed).await;
}

#[tokio::test]
async fn containerd_2_conforms() {
    containerd_conforms(ContainerdVersion::Two).await;
}

async fn containerd_conforms(version: ContainerdVersion) {
    if !Containerd::is_possible() {
        return;
    }
    let settings = ContainerdSettings { version: Some(version), ..Default::default() };
    let containerd = Containerd::start(settings).expect("containerd");
    let image = Image::new("localhost/web:1").file("etc/version", 0o644, "1");
    let login = Login { user: "edge".to_owned(), password: "s3cret".to_owned() };
    let open = containerd.registry(5000, None).expect("a registry");
    let closed = containerd.registry(5001, Some(login)).expect("a registry");
    let registries = Registries::default();
    let pushed = containerd.push(&open, &image, "team/web:1").expect("it is sent");
    assert_eq!(pushed, registries.good);
    let pushed = containerd.push(&closed, &image, "team/web:1").expect("it is sent");
    assert_eq!(pushed, registries.closed);
    let (socket, data) = (containerd.socket(), containerd.data());
    conforms(&Bench::new(socket, data, containerd.cgroup_parent(), version)).await;
}
