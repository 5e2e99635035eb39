//! The content of a file, live and durable.

use crate::survival::{Draw, Fate, Loss};

/// The content of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileData {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// What `live` has and `durable` does not, oldest first.
    unsynced: Vec<Edit>,
}

#[derive(Clone, Debug)]
enum Edit {
    Write { at: u64, bytes: Vec<u8> },
    Resize(u64),
}

impl FileData {
    pub(crate) fn length(&self) -> u64 {
        self.live.len() as u64
    }

    pub(crate) fn read(&self, at: u64, count: usize) -> &[u8] {
        let from = index(at).min(self.live.len());
        let to = from.saturating_add(count).min(self.live.len());
        &self.live[from..to]
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let edit = Edit::Write { at, bytes: bytes.to_vec() };
        edit.apply(&mut self.live);
        self.unsynced.push(edit);
    }

    pub(crate) fn resize(&mut self, length: u64) {
        let edit = Edit::Resize(length);
        edit.apply(&mut self.live);
        self.unsynced.push(edit);
    }

    pub(crate) fn sync(&mut self) {
        for edit in self.unsynced.drain(..) {
            edit.apply(&mut self.durable);
        }
    }

    /// A sync failed: what it was to carry over never will be.
    pub(crate) fn sync_failed(&mut self) {
        self.unsynced.clear();
    }

    /// The power goes.
    pub(crate) fn cut(&mut self, draw: &mut Draw) -> Loss {
        let unsynced = std::mem::take(&mut self.unsynced);
        let mut loss = Loss { touched: u64::from(!unsynced.is_empty()), ..Loss::default() };
        if draw.is_ordered() {
            let whole = draw.prefix(unsynced.len());
            for (place, edit) in unsynced.iter().enumerate() {
                if place < whole {
                    edit.apply(&mut self.durable);
                } else if let Edit::Write { at, bytes } = edit {
                    let fate =
                        if place == whole { draw.tear(*at, bytes.len()) } else { Fate::Lost };
                    self.survive(*at, bytes, &fate, &mut loss);
                }
            }
        } else {
            let odds = draw.odds();
            for edit in &unsynced {
                match edit {
                    Edit::Write { at, bytes } => {
                        let fate = draw.scatter(*at, bytes.len(), odds);
                        self.survive(*at, bytes, &fate, &mut loss);
                    }
                    Edit::Resize(_) if draw.coin(odds) => edit.apply(&mut self.durable),
                    Edit::Resize(_) => {}
                }
            }
        }
        self.live = self.durable.clone();
        loss
    }

    fn survive(&mut self, at: u64, bytes: &[u8], fate: &Fate, loss: &mut Loss) {
        let Fate::Parts(parts) = fate else {
            loss.bytes += bytes.len() as u64;
            return;
        };
        let mut kept = 0;
        for (from, to) in parts {
            write(&mut self.durable, at + *from as u64, &bytes[*from..*to]);
            kept += to - from;
        }
        loss.bytes += (bytes.len() - kept) as u64;
        loss.torn += u64::from(kept < bytes.len());
    }
}

impl Edit {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => write(content, *at, bytes),
            Self::Resize(length) => content.resize(index(*length), 0),
        }
    }
}

fn write(content: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let from = index(at);
    let to = from + bytes.len();
    if content.len() < to {
        content.resize(to, 0);
    }
    content[from..to].copy_from_slice(bytes);
}

/// A place in memory. What does not fit was refused as too large before.
fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survival::Survives;

    #[test]
    fn a_prefix_is_torn_at_a_sector_and_only_there() {
        for seed in 0..200 {
            let mut file = FileData::default();
            file.write(0, &[1; 700]);
            file.sync();
            for n in 2..8 {
                file.write(file.length(), &[n; 700]);
            }
            let live = file.live.clone();
            let loss = file.cut(&mut Draw::new(Survives::Prefix { seed }));
            assert!(file.live.len() >= 700, "what was synced stays");
            assert_eq!(file.live, live[..file.live.len()], "a prefix");
            assert_eq!(file.live.len() as u64 + loss.bytes, live.len() as u64);
            let whole = file.live.len().is_multiple_of(700);
            assert!(whole || file.live.len().is_multiple_of(512), "{}", file.live.len());
        }
    }

    #[test]
    fn a_scattered_cut_leaves_holes() {
        let mut holes = 0;
        for seed in 0..50 {
            let mut file = FileData::default();
            file.write(0, &[1; 40_000]);
            file.cut(&mut Draw::new(Survives::Scattered { seed }));
            let last = file.live.iter().rposition(|byte| *byte == 1).unwrap_or(0);
            holes += u32::from(file.live[..last].contains(&0));
        }
        assert!(holes > 10, "{holes} of 50");
    }

    #[test]
    fn what_a_failed_sync_was_to_keep_is_shown_and_lost() {
        let mut file = FileData::default();
        file.write(0, b"before");
        file.sync_failed();
        file.sync();
        assert_eq!(file.read(0, 10), b"before");
        file.cut(&mut Draw::new(Survives::Nothing));
        assert_eq!(file.length(), 0);
    }
}
