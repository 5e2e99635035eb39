//! The plan as a table, and over any images.

use proptest::collection::vec;
use proptest::prelude::*;

use std::time::Duration;

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

const SETTINGS: ImageCollection = ImageCollection {
    high_percent: 85,
    low_percent: 80,
    age_min: Duration::from_mins(2),
    age_max: None,
};

/// A disk of 1000 bytes of which so many are free.
fn free(available_bytes: u64) -> DiskSpace {
    DiskSpace { capacity_bytes: 1000, available_bytes }
}

/// An image that came and was used so many minutes ago.
fn image(id: &str, bytes: u64, seen: Option<u32>, used: u32, now: Instant) -> ImageFacts {
    ImageFacts {
        id: id.into(),
        bytes,
        is_pinned: false,
        is_used: false,
        seen: now - MINUTE * seen.unwrap_or(90),
        last_used: now - MINUTE * used,
    }
}

fn ids(removals: &[Removal]) -> String {
    removals.iter().map(|removal| &*removal.id).collect::<Vec<_>>().join(" ")
}

/// The time of all cases: a monotonic clock may have begun a moment ago.
fn now() -> Instant {
    Instant::now() + Duration::from_hours(1000)
}

#[test]
fn images_go_by_their_last_use_from_the_high_threshold_down_to_the_low_one() {
    let now = now();
    let images = [
        image("new", 100, Some(1), 1, now),
        image("a", 30, Some(90), 50, now),
        image("b", 30, None, 60, now),
        ImageFacts { is_used: true, ..image("used", 500, Some(90), 0, now) },
        ImageFacts { is_pinned: true, ..image("pinned", 500, None, 90, now) },
        image("c", 30, Some(90), 40, now),
    ];
    for (available, expected) in [
        (1000, ""),
        (160, ""),
        // 15 % are free: the high threshold is reached. 20 % have to be.
        (150, "b a"),
        (159, "b a"),
        (140, "b a"),
        (139, "b a c"),
        // What is used, pinned or new stays, however full the disk is.
        (0, "b a c"),
    ] {
        let plan = plan(&images, free(available), &SETTINGS, 85, now);
        // 159 of 1000 are 15 %, as a kubelet rounds.
        assert_eq!(ids(&plan), expected, "{available} bytes are free");
        assert!(plan.iter().all(|removal| removal.reason == RemovalReason::Space));
    }
    let begun = plan(&images, free(170), &SETTINGS, 80, now);
    assert_eq!(ids(&begun), "b", "a collection that has begun goes on to the low threshold");
    assert_eq!(ids(&plan(&images, free(200), &SETTINGS, 80, now)), "");
}

#[test]
fn an_image_that_was_not_used_for_the_maximum_age_goes_on_an_empty_disk_too() {
    let now = now();
    let images = [
        image("old", 30, None, 61, now),
        image("exact", 30, None, 60, now),
        ImageFacts { is_used: true, ..image("used", 30, None, 600, now) },
        ImageFacts { is_pinned: true, ..image("pinned", 30, None, 600, now) },
    ];
    let settings = ImageCollection { age_max: Some(60 * MINUTE), ..SETTINGS };
    let plan = |disk, settings: &ImageCollection| plan(&images, disk, settings, 85, now);
    assert_eq!(ids(&plan(free(1000), &SETTINGS)), "", "without a maximum age it stays");
    let removals = plan(free(1000), &settings);
    assert_eq!((ids(&removals).as_str(), removals[0].reason), ("old", RemovalReason::Age));
    let reasons = |removals: Vec<Removal>| -> Vec<_> {
        removals.into_iter().map(|removal| (removal.id.to_string(), removal.reason)).collect()
    };
    let both = [("old", RemovalReason::Age), ("exact", RemovalReason::Space)];
    let both = both.map(|(id, reason)| (id.to_owned(), reason));
    assert_eq!(reasons(plan(free(150), &settings)), both, "30 of 50 bytes come from the old one");
}

#[test]
fn the_part_in_use_is_rounded_as_by_a_kubelet() {
    for (available, percent) in [(0, 100), (1, 100), (9, 100), (10, 99), (999, 1), (1000, 0)] {
        assert_eq!(free(available).used_percent(), percent, "{available}");
    }
    let none = DiskSpace { capacity_bytes: 0, available_bytes: 0 };
    assert_eq!((none.used_percent(), none.missing_bytes(80)), (100, 0));
    let huge = DiskSpace { capacity_bytes: u64::MAX, available_bytes: u64::MAX };
    assert_eq!((huge.used_percent(), huge.missing_bytes(0)), (0, 0));
}

fn facts(now: Instant) -> impl Strategy<Value = ImageFacts> {
    let ages = (proptest::option::of(0_u32..10), 0_u32..10);
    (0_u64..400, any::<bool>(), any::<bool>(), ages).prop_map(
        move |(bytes, is_used, is_pinned, (seen, used))| {
            let used = seen.map_or(used, |seen| used.min(seen));
            ImageFacts { is_used, is_pinned, ..image("", bytes, seen, used, now) }
        },
    )
}

proptest! {
    #[test]
    fn what_is_used_pinned_or_young_stays_and_no_more_goes_than_is_missing(
        (now, images) in Just(now()).prop_flat_map(|now| (Just(now), vec(facts(now), 0..12))),
        available in 0_u64..=1000,
        age_max in proptest::option::of(0_u32..10),
        begun in any::<bool>(),
    ) {
        let images: Vec<ImageFacts> = images
            .into_iter()
            .enumerate()
            .map(|(number, image)| ImageFacts { id: number.to_string().into(), ..image })
            .collect();
        let settings =
            ImageCollection { age_max: age_max.map(|minutes| MINUTE * minutes), ..SETTINGS };
        let begin = if begun { 80 } else { 85 };
        let disk = free(available);
        let removals = plan(&images, disk, &settings, begin, now);
        let of = |id: &str| images.iter().find(|image| *image.id == *id).expect("an image");
        for removal in &removals {
            let image = of(&removal.id);
            prop_assert!(!image.is_used && !image.is_pinned);
            prop_assert!(now - image.seen >= settings.age_min);
        }
        let mut once: Vec<_> = removals.iter().map(|removal| &removal.id).collect();
        once.sort();
        once.dedup();
        prop_assert_eq!(once.len(), removals.len());
        let for_space: Vec<_> =
            removals.iter().filter(|removal| removal.reason == RemovalReason::Space).collect();
        if disk.used_percent() < begin.into() {
            prop_assert!(for_space.is_empty());
        }
        // Without the last one too little would be free.
        if let Some(last) = for_space.last() {
            let freed: u64 = removals.iter().map(|removal| removal.bytes).sum();
            prop_assert!(freed - last.bytes < disk.missing_bytes(settings.low_percent));
        }
        // Nothing that stays was used longer ago than what goes for space.
        let may_go = |image: &&ImageFacts| {
            let is_young = now - image.seen < settings.age_min;
            !image.is_used && !image.is_pinned && !is_young
        };
        let goes = |image: &&ImageFacts| removals.iter().any(|removal| removal.id == image.id);
        let latest = for_space.iter().map(|removal| of(&removal.id).last_used).max();
        for image in images.iter().filter(may_go).filter(|image| !goes(image)) {
            prop_assert!(latest.is_none_or(|latest| image.last_used >= latest));
        }
    }
}
