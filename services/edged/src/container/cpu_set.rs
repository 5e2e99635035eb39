//! A set of processors, in the kernel's form: `0-3,7`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// More processors than a kernel has (`CONFIG_NR_CPUS`): a longer list is none.
const CPUS_MAX: u32 = 8192;

/// Processors by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<u32>);

/// The text is no list of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no list of processors, such as 0-3,7")]
pub struct InvalidCpuSet(String);

impl CpuSet {
    /// The processors in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this one is among them.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Whether all of these are in `other`, too.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Whether none of these is in `other`.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }

    /// These and the others.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    /// These without the others.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = InvalidCpuSet;

    fn from_str(text: &str) -> Result<Self, InvalidCpuSet> {
        let invalid = || InvalidCpuSet(text.chars().take(64).collect());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.parse::<u32>().ok().filter(|cpu| *cpu < CPUS_MAX);
            let (first, last) = number(first).zip(number(last)).ok_or_else(invalid)?;
            if first > last {
                return Err(invalid());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuSet {
    type Error = InvalidCpuSet;

    fn try_from(text: String) -> Result<Self, InvalidCpuSet> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> Self {
        cpus.to_string()
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            match last {
                last if last == first => write!(f, "{separator}{first}")?,
                last => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_and_written_as_the_kernel_does() {
        for (text, written) in
            [("0-3,7", "0-3,7"), ("", ""), ("2,1,0", "0-2"), ("5\n", "5"), ("0,2-2,4", "0,2,4")]
        {
            let cpus: CpuSet = text.parse().expect(text);
            assert_eq!(cpus.to_string(), written);
        }
        for text in ["a", "1-", "3-1", "-1", "8192", "0-4294967295", "1 2"] {
            text.parse::<CpuSet>().expect_err(text);
        }
    }
}
