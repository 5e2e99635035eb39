//! Which users the local API serves.

use std::fs::{Permissions, set_permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use headwater_edge::{Edge, EdgeConfig, HubAddress, LocalUser};
use headwater_store::MemoryEngine;
use rustix::thread::{Uid, set_thread_res_uid};

use crate::bench::{dependencies, node};

const ROOT: u32 = 0;
const CONFIGURED: u32 = 47_110;
const ANOTHER: u32 = 47_111;

/// The beginning of a connection, which a server answers: the preface of HTTP/2 and no settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_socket_serves_the_edges_user_and_the_configured_one_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let (socket, own) = (dir.path().join("edge.sock"), dir.path().metadata().expect("made"));
    // Only root can give the socket to the group of another user, and be other users.
    let is_root = own.uid() == ROOT;
    let group = if is_root { CONFIGURED } else { own.gid() };
    let hubs: [HubAddress; 0] = [];
    let mut config = EdgeConfig::new(node(), hubs, socket.clone());
    config.local_user = Some(LocalUser { user: CONFIGURED, group });
    let (state, outbox) = (Arc::new(MemoryEngine::new()), Arc::new(MemoryEngine::new()));
    let edge = Edge::start(config, state, outbox, dependencies(1)).await;
    let edge = edge.expect("starts");
    let found = socket.metadata().expect("a socket");
    assert_eq!((found.mode() & 0o777, found.gid()), (0o660, group));

    // Past the modes, so that only the admission is left.
    for (path, mode) in [(dir.path(), 0o755), (&*socket, 0o666)] {
        set_permissions(path, Permissions::from_mode(mode)).expect("opened");
    }
    let own = own.uid();
    let is_served = |user: u32| {
        let socket = socket.clone();
        let served = move || {
            if user != own {
                // The user of this thread alone.
                let user = Uid::from_raw(user);
                set_thread_res_uid(user, user, user).expect("root may");
            }
            let mut stream = UnixStream::connect(&socket).expect("the mode permits it");
            // A connection that is closed may refuse it.
            let _ = stream.write_all(HELLO);
            stream.read(&mut [0; 9]).is_ok_and(|bytes| bytes > 0)
        };
        std::thread::spawn(served).join().expect("it ends")
    };
    assert!(is_served(own), "the edge's user");
    if is_root {
        assert!(is_served(CONFIGURED), "the configured user");
        assert!(!is_served(ANOTHER), "another user, whom the modes would admit");
    }
    edge.stop().await;
}
