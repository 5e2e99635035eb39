//! The fields of a pod's spec, and what each runtime does with them. Pure.
//!
//! One table names every field of the Kubernetes API in use. A runtime honours a field unless the
//! table names a gap. A gap either refuses, because safety or the meaning of the pod depends on the
//! field: the containers wait, and state the field. Or it is noted, because nothing is lost: the
//! pod's status names the field. A field that the table does not name is of a later API, and noted.
//!
//! | module | job |
//! |---|---|
//! | `field` | a field, its type, and the gaps of runtimes |
//! | `table` | the fields of each type, from `PodSpec` down |
//! | `findings` | the fields of one pod that are refused or noted, from its JSON |
//!
//! In tests, one more module writes `ops/docs/pods.md` from the table, and another one reads the fields
//! of the API in use from its types.

#[cfg(test)]
mod api;
mod field;
mod findings;
#[cfg(test)]
mod page;
mod table;

pub use field::Column;
pub(crate) use findings::{PodFindings, inspect};
