//! When each image came, and when a container had it last. Pure: time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::image_plan::ImageFacts;
use crate::runtime::Image;

/// The images of the node since the start of the pod worker. An image of before counts as used at the start.
#[derive(Debug, Default)]
pub(crate) struct ImageRecords {
    records: BTreeMap<Arc<str>, Record>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    seen: Instant,
    last_used: Instant,
}

impl ImageRecords {
    /// Notes the images that are there, of which containers have those with an id or a name in `used`.
    pub(crate) fn observe(
        &mut self,
        images: &[Image],
        used: &BTreeSet<Arc<str>>,
        now: Instant,
    ) -> Vec<ImageFacts> {
        let new = Record { seen: now, last_used: now };
        self.records.retain(|id, _| images.iter().any(|image| image.id == *id));
        let facts = images.iter().map(|image| {
            let is_used = used.contains(&image.id)
                || image.names.iter().any(|name| used.contains(name.as_str()));
            let record = self.records.entry(image.id.clone()).or_insert(new);
            if is_used {
                record.last_used = now;
            }
            ImageFacts {
                id: image.id.clone(),
                bytes: image.bytes,
                is_pinned: image.is_pinned,
                is_used,
                seen: record.seen,
                last_used: record.last_used,
            }
        });
        facts.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn image(id: &str) -> Image {
        let names = vec![format!("localhost/{id}:1")];
        Image { id: id.into(), names, bytes: 1, is_pinned: false }
    }

    #[test]
    fn an_image_is_young_since_it_came_and_old_since_its_last_use() {
        let start = Instant::now();
        let at = |minute: u32| start + Duration::from_mins(1) * minute;
        let mut records = ImageRecords::default();
        let mut observe = |ids: &[&str], used: &[&str], minute| {
            let images: Vec<Image> = ids.iter().map(|id| image(id)).collect();
            let used = used.iter().map(|text| Arc::from(*text)).collect();
            let facts = records.observe(&images, &used, at(minute));
            facts.into_iter().map(|it| (it.is_used, it.seen, it.last_used)).collect::<Vec<_>>()
        };
        assert_eq!(observe(&["a"], &[], 5), [(false, at(5), at(5))]);
        let later = observe(&["a", "b"], &["localhost/a:1"], 6);
        assert_eq!(later, [(true, at(5), at(6)), (false, at(6), at(6))]);
        let later = observe(&["a", "b"], &["b"], 7);
        assert_eq!(later, [(false, at(5), at(6)), (true, at(6), at(7))]);
        assert_eq!(observe(&["b"], &[], 8), [(false, at(6), at(7))]);
        let again = observe(&["a", "b"], &[], 9);
        assert_eq!(again[0], (false, at(9), at(9)), "it came anew");
    }
}
