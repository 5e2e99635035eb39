//! Sources of objects, the interest of each node, and the fold of what the edges report.
//!
//! | module | what it owns |
//! |---|---|
//! | [`source`] | what every source of objects promises; the manifest folder and the objects socket |
//! | [`interest`] | which node needs which object, as objects come and go |

pub mod interest;
pub mod source;

pub use interest::{Affected, Interest};
pub use source::{Cause, Notice, Published, PublishedObject, Source, SourceError, SourceEvent};
