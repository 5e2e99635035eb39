//! Directories of claims, on a real file system.

use std::collections::BTreeSet;

use tempfile::TempDir;

use super::*;

const HOLD: Duration = Duration::from_secs(30);

/// A pod worker's directory, and its clock.
struct Node {
    dir: TempDir,
    claims: ClaimDirectories,
    now: Instant,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let claims = ClaimDirectories::new(Paths::new(dir.path().to_owned()));
        Self { dir, claims, now: Instant::now() }
    }

    /// A pod that uses the claim begins, as `volumes` does it.
    fn start(&self, pod: &str, claim: &Claim) -> PathBuf {
        let link = self.dir.path().join("pods").join(pod).join("volumes/v");
        fs::create_dir_all(link.parent().expect("a folder")).expect("made");
        self.claims.link(claim, 0o777, &link).expect("linked");
        link
    }

    fn end(&self, pod: &str) {
        fs::remove_dir_all(self.dir.path().join("pods").join(pod)).expect("removed");
    }

    /// Shows the view at once, and again after the hold time.
    fn see(&mut self, view: &ClaimView) {
        for wait in [Duration::ZERO, HOLD] {
            self.now += wait;
            let time = Timestamp::UNIX_EPOCH;
            self.claims.reclaim(view, HOLD, self.now, time).expect("brought up to date");
        }
    }

    fn data(&self, uid: &str) -> PathBuf {
        self.dir.path().join("claims").join(uid).join("data")
    }

    fn kept(&self) -> Vec<String> {
        let kept = crate::disk::claim_record::kept_claims(self.dir.path()).expect("listed");
        kept.iter().map(|kept| kept.name.to_string()).collect()
    }
}

fn claim(uid: &str, policy: ReclaimPolicy) -> Claim {
    let name = ClaimName { namespace: "shop".to_owned(), name: "data".to_owned() };
    Claim { name, uid: uid.to_owned(), policy, is_deleting: false }
}

/// A settled view with this claim, and a pod that names it or not.
fn view(claims: &[&Claim], is_named: bool) -> ClaimView {
    let name = claim("", ReclaimPolicy::Retain).name;
    ClaimView {
        claims: claims.iter().map(|claim| (claim.name.clone(), (*claim).clone())).collect(),
        named: if is_named { BTreeSet::from([name]) } else { BTreeSet::new() },
        is_settled: true,
    }
}

#[test]
fn a_claim_that_is_made_again_under_its_name_has_an_empty_directory() {
    let mut node = Node::new();
    let (first, second) = (claim("c1", ReclaimPolicy::Retain), claim("c2", ReclaimPolicy::Retain));
    let link = node.start("u1", &first);
    fs::write(link.join("file"), "first").expect("written");
    node.end("u1");
    let link = node.start("u2", &second);
    assert_eq!(fs::read_dir(&link).expect("a directory").count(), 0);
    node.see(&view(&[&second], true));
    assert_eq!(fs::read_to_string(node.data("c1").join("file")).expect("kept"), "first");
    assert_eq!(node.kept(), ["shop/data"]);
}

#[test]
fn a_directory_of_an_earlier_version_is_adopted_whole_and_pods_that_run_keep_their_path() {
    let mut node = Node::new();
    let named = node.dir.path().join("claims/shop_data");
    fs::create_dir_all(&named).expect("made");
    fs::write(named.join("file"), "old").expect("written");
    let running = node.dir.path().join("pods/u0/volumes/v");
    fs::create_dir_all(running.parent().expect("a folder")).expect("made");
    symlink(&named, &running).expect("a link of the earlier version");

    // Without a claim of that name in the view nothing happens to it.
    node.see(&view(&[], false));
    assert!(named.is_dir() && !named.is_symlink());
    let present = claim("c1", ReclaimPolicy::Delete);
    node.see(&view(&[&present], true));
    for path in [&running, &node.data("c1")] {
        assert_eq!(fs::read_to_string(path.join("file")).expect("there"), "old");
    }
    // The pod counts as a user of the directory.
    node.see(&view(&[], true));
    assert!(node.data("c1").join("file").exists());
    node.see(&view(&[&present], true));
    let link = node.start("u0", &present);
    assert_eq!(fs::read_link(&link).expect("a link"), node.data("c1"));
    node.see(&view(&[&present], true));
    assert!(!named.is_symlink(), "no pod leads there any more");
    assert_eq!(fs::read_to_string(link.join("file")).expect("there"), "old");
}

#[test]
fn an_adoption_that_was_interrupted_is_completed() {
    let node = Node::new();
    let present = claim("c1", ReclaimPolicy::Retain);
    let named = node.dir.path().join("claims/shop_data");
    fs::create_dir_all(&named).expect("made");
    fs::write(named.join("file"), "old").expect("written");
    fs::create_dir_all(node.dir.path().join("claims/c1")).expect("made");
    node.claims.write("c1", &ClaimRecord::of(&present)).expect("written");
    let link = node.start("u1", &present);
    assert_eq!(fs::read_to_string(link.join("file")).expect("there"), "old");
}

#[test]
fn a_deleted_claim_with_the_policy_delete_is_removed_after_its_last_pod() {
    let mut node = Node::new();
    let deleted = claim("c1", ReclaimPolicy::Delete);
    for pod in ["u1", "u2"] {
        node.start(pod, &deleted);
    }
    node.see(&view(&[&deleted], true));
    node.see(&view(&[], true));
    node.end("u1");
    node.see(&view(&[], false));
    assert!(node.data("c1").exists(), "a pod uses it");
    node.end("u2");
    node.see(&view(&[], false));
    assert!(!node.dir.path().join("claims/c1").exists());
    assert_eq!(fs::read_dir(node.dir.path().join("claims")).expect("listed").count(), 0);
}

#[test]
fn a_claim_that_the_cloud_was_about_to_delete_or_that_another_succeeded_is_deleted() {
    let mut node = Node::new();
    let present = claim("c1", ReclaimPolicy::Delete);
    node.start("u1", &present);
    let deleting = Claim { is_deleting: true, ..present };
    node.see(&view(&[&deleting], true));
    node.end("u1");
    node.see(&view(&[], false));
    assert!(!node.data("c1").exists());

    let (first, second) = (claim("c2", ReclaimPolicy::Delete), claim("c3", ReclaimPolicy::Delete));
    node.start("u2", &first);
    node.end("u2");
    node.see(&view(&[&second], false));
    assert!(!node.data("c2").exists());
}

#[test]
fn a_claim_that_left_with_its_pods_stays_whatever_its_policy_and_is_listed_until_it_returns() {
    for policy in [ReclaimPolicy::Retain, ReclaimPolicy::Delete] {
        let mut node = Node::new();
        let present = claim("c1", policy);
        node.start("u1", &present);
        node.see(&view(&[&present], true));
        node.end("u1");
        node.see(&view(&[], false));
        // A pod of that name comes later, and its claim with it.
        node.see(&view(&[], false));
        assert!(node.data("c1").exists(), "{policy:?}");
        assert_eq!(node.kept(), ["shop/data"]);
        node.see(&view(&[&present], true));
        assert!(node.kept().is_empty());
    }
}

#[test]
fn a_retained_claim_stays_though_it_is_deleted() {
    let mut node = Node::new();
    let present = claim("c1", ReclaimPolicy::Retain);
    node.start("u1", &present);
    node.see(&view(&[&present], true));
    node.see(&view(&[], true));
    node.end("u1");
    node.see(&view(&[], false));
    assert!(node.data("c1").exists());
    assert_eq!(node.kept(), ["shop/data"]);
}

#[test]
fn absence_from_a_view_that_is_not_settled_or_for_a_moment_removes_nothing() {
    let mut node = Node::new();
    let present = claim("c1", ReclaimPolicy::Delete);
    node.start("u1", &present);
    node.see(&view(&[&present], true));
    node.end("u1");
    node.see(&ClaimView { is_settled: false, ..view(&[], true) });
    // The events of one commit: the claim leaves, then its pod.
    let at = node.now;
    let show = |view: &ClaimView, after: Duration| {
        let time = Timestamp::UNIX_EPOCH;
        node.claims.reclaim(view, HOLD, at + after, time).expect("brought up to date");
    };
    show(&view(&[], true), Duration::ZERO);
    show(&view(&[], false), Duration::from_millis(1));
    show(&view(&[], true), HOLD * 2);
    assert!(node.data("c1").exists());
}

#[test]
fn a_removal_that_was_interrupted_is_completed() {
    let mut node = Node::new();
    let left = node.dir.path().join("claims/.removed-c1/data");
    fs::create_dir_all(&left).expect("made");
    node.see(&ClaimView::default());
    assert!(!node.dir.path().join("claims/.removed-c1").exists());
}
