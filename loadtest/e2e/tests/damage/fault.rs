//! The faults of a database that no process uses.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use headwater_e2e::chance::Chance;

/// Which files of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Write-ahead logs.
    Wal,
    /// Tables.
    Table,
    /// The list of the tables that count.
    Manifest,
    /// The name of that list.
    Current,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The whole directory is gone.
    Removed,
    /// The newest such file has no bytes any more.
    Emptied(End),
    /// The newest such file has lost its last half, or with 1 its last byte.
    CutShort(End, u64),
    /// The newest such file is gone.
    Gone(End),
    /// A bit of any file is another.
    Flipped,
}

impl Fault {
    /// Does it to the database at `path`; says what was done, `None` where there is no such file.
    pub(crate) fn happens_to(self, path: &Path, chance: &mut Chance) -> Option<String> {
        let done = match self {
            Self::Removed => {
                fs::remove_dir_all(path).expect("it was there");
                path.display().to_string()
            }
            Self::Emptied(end) => cut(&newest(path, end)?, |_| 0),
            Self::CutShort(end, 1) => cut(&newest(path, end)?, |length| length.saturating_sub(1)),
            Self::CutShort(end, _) => cut(&newest(path, end)?, |length| length / 2),
            Self::Gone(end) => {
                let file = newest(path, end)?;
                fs::remove_file(&file).expect("it was there");
                file.display().to_string()
            }
            Self::Flipped => flip(path, chance),
        };
        Some(format!("{self:?}: {done}"))
    }
}

/// The newest file of the kind that holds anything.
fn newest(path: &Path, end: End) -> Option<PathBuf> {
    let is_it = |name: &str| match end {
        End::Wal => name.ends_with(".log"),
        End::Table => name.ends_with(".sst"),
        End::Manifest => name.starts_with("MANIFEST"),
        End::Current => name == "CURRENT",
    };
    files(path).into_iter().rfind(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        is_it(&name)
    })
}

/// The files of a database that hold anything, in the order of their numbers.
fn files(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("a database").flatten();
    let has_bytes = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(has_bytes).collect();
    files.sort();
    files
}

fn cut(file: &Path, to: impl FnOnce(u64) -> u64) -> String {
    let open = File::options().write(true).open(file).expect("it was there");
    let length = open.metadata().expect("it was there").len();
    let left = to(length);
    open.set_len(left).expect("cut");
    format!("{} of {length} bytes of {} are left", left, file.display())
}

/// Flips one bit of one file. Words for people and options count for nothing, so they are left.
fn flip(path: &Path, chance: &mut Chance) -> String {
    let counts = |file: &&PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        !name.starts_with("LOG") && !name.starts_with("OPTIONS") && name != "IDENTITY"
    };
    let files = files(path);
    let files: Vec<&PathBuf> = files.iter().filter(counts).collect();
    let file = *chance.one_of(&files);
    let mut bytes = fs::read(file).expect("it was there");
    let (at, bit) = (chance.below(bytes.len() as u64), chance.below(8));
    bytes[usize::try_from(at).expect("a small file")] ^= 1 << bit;
    fs::write(file, &bytes).expect("written");
    format!("bit {bit} of byte {at} of {} in {}", bytes.len(), file.display())
}
