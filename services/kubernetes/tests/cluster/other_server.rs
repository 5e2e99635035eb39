//! A server of another cluster that takes the place of the server while the source runs, as behind an address that moves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater_apiserver::ApiServer;
use headwater_kubernetes::{Connection, KubernetesSettings};
use kube::client::Body;
use tokio::time::{Instant, sleep};
use tower::{ServiceExt as _, service_fn};

use crate::world::{Running, World, config, node, pod, put, twin};

const KEYS: [&str; 3] = ["default/configmap/settings", "default/pod/p", "null/node/gw"];

/// Sooner than the source looks at the server by itself, which it does every 30 s.
const BEFORE_THE_LOOK: Duration = Duration::from_secs(10);

/// When it has looked, before a watch ends by itself.
const AFTER_THE_LOOK: Duration = Duration::from_secs(35);

const STEP: Duration = Duration::from_millis(100);

/// A controller that follows the first of two servers behind one address.
struct Moving {
    first: ApiServer,
    second: ApiServer,
    current: Arc<Mutex<ApiServer>>,
    world: World,
    running: Running,
}

impl Moving {
    async fn start() -> Self {
        let (first, second) = (twin(), another_twin());
        for server in [&first, &second] {
            put(server, &[node("gw", true), config("settings", "x"), pod("p", "gw", "settings")]);
        }
        let current = Arc::new(Mutex::new(first.clone()));
        let behind = current.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            let server = behind.lock().expect("no panic").clone();
            server.oneshot(request)
        });
        let world = World::new();
        let connection = Connection::over(service, "the moving server");
        let running = world.start_over(connection, KubernetesSettings::default()).await;
        running.reconciled().await;
        world.has("node/gw", &KEYS).await;
        // A watch that went on at the other server would send this.
        put(&second, &[pod("of-another-cluster", "gw", "settings")]);
        Self { first, second, current, world, running }
    }

    /// The second server has the address. What is open goes on.
    fn switch(&self) {
        *self.current.lock().expect("no panic") = self.second.clone();
    }

    /// The source stops by itself; nothing was removed and nothing of the other cluster was taken.
    async fn stops_within(self, within: Duration) {
        let end = Instant::now() + within;
        loop {
            let troubles = self.running.controller.source_states().borrow().troubles();
            if troubles.iter().any(|trouble| trouble.contains("another cluster")) {
                break;
            }
            assert!(Instant::now() < end, "not noticed: {troubles:?}");
            sleep(STEP).await;
        }
        sleep(AFTER_THE_LOOK).await;
        self.world.has("node/gw", &KEYS).await;
        assert_eq!(self.world.removals().await, [""; 0]);
        self.running.controller.stop().await;
    }
}

/// A server whose UIDs are others.
fn another_twin() -> ApiServer {
    let mut drawn = 1_000_000;
    let draw = move || {
        drawn += 1;
        drawn
    };
    ApiServer::new(|| 1_700_000_000_000, draw)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_cut_does_not_go_on_at_another_cluster() {
    let moving = Moving::start().await;
    moving.switch();
    moving.first.stop();
    moving.stops_within(BEFORE_THE_LOOK).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_another_cluster_is_not_believed() {
    let moving = Moving::start().await;
    moving.switch();
    // The watches are too old for the second server.
    moving.second.restart();
    moving.first.stop();
    moving.stops_within(BEFORE_THE_LOOK).await;
}

#[tokio::test(start_paused = true)]
async fn another_cluster_is_noticed_while_every_watch_is_open() {
    let moving = Moving::start().await;
    moving.switch();
    moving.stops_within(AFTER_THE_LOOK).await;
}
