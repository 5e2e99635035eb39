//! Images and ended containers that nothing needs, on a real containerd.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings, Image, PAUSE_IMAGE};
use headwater_edged::ImageCollection;
use headwater_edged::runtime::FileSystemUsage;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, uid, until};
use crate::life::{FOREVER, containers, gone, start};

/// The room of the small disk, in MiB: containerd itself takes a tenth of it.
const ROOM_MIB: usize = 96;

/// The bytes of a large image. It lies there twice: packed, and as a layer.
const LARGE_BYTES: usize = 6 << 20;

/// The interval between two collections.
const PERIOD: Duration = Duration::from_millis(100);

/// Runs a test on a thread with mounts of its own, which end with it. There, a folder is a small disk.
pub(crate) fn on_a_small_disk<F: Future<Output = ()>>(
    test: impl FnOnce(PathBuf) -> F + Send + 'static,
) {
    let on_thread = move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("mounts of its own");
        let none: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).expect("mounts that are not shared");
        let disk = tempfile::tempdir().expect("a folder");
        let room = format!("size={ROOM_MIB}m,mode=0755");
        let kind = Some("tmpfs");
        mount(kind, disk.path(), kind, MsFlags::empty(), Some(room.as_str())).expect("a disk");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.expect("a runtime").block_on(test(disk.path().to_owned()));
        nix::mount::umount2(disk.path(), nix::mount::MntFlags::MNT_DETACH).expect("unmounted");
    };
    std::thread::spawn(on_thread).join().expect("the test passes");
}

/// An image of noise, which cannot be packed.
pub(crate) fn large(name: &str) -> Image {
    let mut random = StdRng::seed_from_u64(name.bytes().map(u64::from).sum());
    let noise: Vec<u8> = (0..LARGE_BYTES).map(|_| random.random()).collect();
    Image::new(format!("localhost/{name}:1")).file("noise", 0o644, noise)
}

/// The names of the images.
pub(crate) fn images(containerd: &Containerd) -> BTreeSet<String> {
    let output = containerd.ctr().args(["images", "list", "--quiet"]).output().expect("it starts");
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    // Others are ids of the same images.
    names.lines().filter(|name| name.starts_with("localhost/")).map(str::to_owned).collect()
}

fn used_percent(disk: &Path) -> u64 {
    let usage = FileSystemUsage::of(disk).expect("measured");
    100 - usage.available.bytes * 100 / usage.capacity.bytes
}

/// Takes the room that is left, but for a mebibyte.
fn fill(disk: &Path, filler: &Path) {
    let free = FileSystemUsage::of(disk).expect("measured").available.bytes;
    let more = usize::try_from(free).expect("a size").saturating_sub(1 << 20);
    let mut file = File::options().create(true).append(true).open(filler).expect("opened");
    // containerd writes, too: it may not fit.
    let _ = file.write_all(&vec![1; more]);
}

/// The reasons of the node's Events.
pub(crate) fn reasons(bench: &Bench) -> BTreeSet<String> {
    let operations = bench.edge.operations();
    let events = operations.iter().filter(|it| it.resource.starts_with("default/event/gw-1."));
    let events = events.map(|it| serde_json::from_slice::<Value>(&it.content).expect("JSON"));
    events.filter_map(|event| event["reason"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_full_disk_of_images_gets_room_and_nothing_goes_that_is_needed() {
    if !Containerd::is_possible() {
        return;
    }
    on_a_small_disk(|disk| async move {
        let settings = ContainerdSettings { data: Some(disk.clone()), ..Default::default() };
        let containerd = Containerd::start(settings).expect("containerd");
        let import = |names: &[&str]| {
            for name in names {
                containerd.import(&[large(name)]).expect("imported");
                // The file that was imported lies on the small disk, too.
                fs::remove_dir_all(disk.join("images")).expect("removed");
            }
        };
        import(&["ended", "a", "b"]);
        let mut bench = Bench::new(containerd.socket());
        bench.settings.image_collection_period = PERIOD;
        bench.settings.image_collection =
            ImageCollection { age_min: Duration::ZERO, ..ImageCollection::default() };
        let edged = bench.edged().await;
        let web = bench.pod("web", FOREVER);
        bench.edge.apply(&web);
        bench.status("web", "a running pod", is_running).await;
        // A container that has ended has its image, too.
        let mut ended = bench.pod("ended", "");
        ended["spec"]["restartPolicy"] = json!("Never");
        ended["spec"]["containers"][0]["image"] = json!("localhost/ended:1");
        bench.edge.apply(&ended);
        bench.status("ended", "a failed pod", |status| status["phase"] == "Failed").await;
        let all = |more: &[&str]| -> BTreeSet<String> {
            let names = more.iter().map(|name| format!("localhost/{name}:1"));
            let needed = [PAUSE_IMAGE, BUSYBOX_IMAGE, "localhost/ended:1"].map(str::to_owned);
            names.chain(needed).collect()
        };
        assert_eq!(images(&containerd), all(&["a", "b"]), "{} %", used_percent(&disk));

        import(&["c", "d", "e", "f"]);
        // What was there first went first, and no more than is needed: the newest are there.
        let of_images = || (used_percent(&disk), images(&containerd));
        let gone_first = || async {
            let (percent, left) = of_images();
            let has_newest = left.is_superset(&all(&["e", "f"]));
            let is_fewer = left.len() < all(&["a", "b", "c", "d", "e", "f"]).len();
            (percent < 85 && has_newest && is_fewer).then_some(())
        };
        assert!(until(gone_first).await.is_some(), "{:?}", of_images());
        assert_eq!(reasons(&bench), BTreeSet::new());

        // What is no image fills the disk: every image goes that is not needed, and the node says so.
        let filler = disk.join("filler");
        let warned = || async {
            fill(&disk, &filler);
            reasons(&bench).contains("FreeDiskSpaceFailed").then_some(())
        };
        assert!(until(warned).await.is_some(), "{:?} {:?}", of_images(), reasons(&bench));
        assert_eq!(images(&containerd), all(&[]));
        fs::remove_file(&filler).expect("removed");

        // The images that stayed are whole.
        let other = bench.pod("other", FOREVER);
        bench.edge.apply(&other);
        bench.status("other", "another pod", is_running).await;
        for pod in [&web, &ended, &other] {
            bench.delete(pod).await;
        }
        gone(&containerd, &["web", "ended", "other"]).await;
        edged.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_ended_container_stays_and_nothing_of_a_pod_without_a_record() {
    let Some(containerd) = start() else { return };
    let mut bench = Bench::new(containerd.socket());
    bench.settings.container_collection_period = PERIOD;
    let edged = bench.edged().await;
    // It fails three times, then it succeeds.
    let mut pod = bench.pod("job", "[ $(wc -l < /notes/job) -gt 3 ] || exit 3");
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    bench.edge.apply(&pod);
    bench.status("job", "its success", |status| status["phase"] == "Succeeded").await;
    assert_eq!(bench.starts("job"), 4);
    let logs = bench.edged_dir().join(format!("logs/shop_job_{}/job", uid("job")));
    let names = || -> BTreeSet<String> {
        let entries = logs.read_dir().into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    // Its sandbox, and the last run with its log. The log of a run goes after its container.
    let last = BTreeSet::from(["3.log".to_owned()]);
    let only_last =
        || async { (containers(&containerd).len() == 2 && names() == last).then_some(()) };
    assert!(until(only_last).await.is_some(), "{:?} {:?}", containers(&containerd), names());
    let files = crate::bench::log_files(&edged, "job", true);
    assert_eq!(files, [logs.join("3.log")], "the last run that ended is the one before");

    // The disk loses its record.
    edged.stop().await;
    bench.edge.delete("shop/pod/job");
    fs::remove_dir_all(bench.edged_dir().join("pods").join(uid("job"))).expect("removed");
    let edged = bench.edged().await;
    let none = || async { containers(&containerd).is_empty().then_some(()) };
    assert!(until(none).await.is_some(), "{:?}", containers(&containerd));
    let none = || async { (!logs.exists()).then_some(()) };
    assert!(until(none).await.is_some(), "its logs stay");
    edged.stop().await;
    gone(&containerd, &["job"]).await;
}
