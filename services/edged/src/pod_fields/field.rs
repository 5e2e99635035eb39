//! A field of the Kubernetes API, and the runtimes that do not do what it asks for.

use serde_json::{Map, Value};

/// A column of the table of fields: the runtimes whose gaps are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Containers are processes of the host.
    Process,
    /// Containers have no processes: a field about processes has nothing to act on.
    Hollow,
    /// The twin of a container runtime, in tests.
    Memory,
    /// Containers run in a container runtime, over the CRI.
    Cri,
}

/// A type of the API, with all its fields.
#[derive(Debug)]
pub(super) struct Type {
    /// Its name in the API.
    pub(super) name: &'static str,
    /// Its fields, in alphabetical order.
    pub(super) fields: &'static [Field],
}

/// A field of a type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// The type of its value, or of the values in its list; `None` for a value without fields, and
    /// for a field that is decided as a whole.
    pub(super) of: Option<&'static Type>,
    /// What some runtimes do not do: no runtime is in both.
    pub(super) gaps: [Option<Gap>; 2],
    /// How it is honoured, where this is not obvious.
    #[cfg_attr(not(test), expect(dead_code, reason = "the page states it, which a test writes"))]
    pub(super) remark: &'static str,
    /// The cluster acts on it, and no node does.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares the table with the API"))]
    pub(super) is_of_cluster: bool,
}

/// What some runtimes do not do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// The runtimes.
    pub(super) columns: &'static [Column],
    /// The consequence.
    pub(super) effect: Effect,
    /// The values that ask for nothing.
    pub(super) unless: Unless,
    /// What the runtime does instead.
    pub(super) why: &'static str,
}

/// The consequence of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Containers wait: without the field the pod would be less safe, or another pod.
    Refused,
    /// The status names the field: without it the pod does its work.
    Noted,
}

/// The values of a field that ask for what happens anyway.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unless {
    /// None: every value asks for something.
    Never,
    /// These texts, numbers or booleans.
    Is(&'static [&'static str]),
    /// The value of another field of the same object.
    SameAs(&'static str),
}

/// A field that every runtime honours, until a gap is added.
pub(super) const fn field(name: &'static str) -> Field {
    Field { name, of: None, gaps: [None; 2], remark: "", is_of_cluster: false }
}

/// A field whose own fields are in the table.
pub(super) const fn typed(name: &'static str, of: &'static Type) -> Field {
    Field { name, of: Some(of), gaps: [None; 2], remark: "", is_of_cluster: false }
}

impl Field {
    /// The same field, refused by these runtimes.
    pub(super) const fn refused(
        self,
        columns: &'static [Column],
        unless: Unless,
        why: &'static str,
    ) -> Self {
        self.with(Gap { columns, effect: Effect::Refused, unless, why })
    }

    /// The same field, noted by these runtimes.
    pub(super) const fn noted(
        self,
        columns: &'static [Column],
        unless: Unless,
        why: &'static str,
    ) -> Self {
        self.with(Gap { columns, effect: Effect::Noted, unless, why })
    }

    const fn with(self, gap: Gap) -> Self {
        let gaps = match self.gaps {
            [None, _] => [Some(gap), None],
            [first, _] => [first, Some(gap)],
        };
        Self { gaps, ..self }
    }

    /// The same field with a remark.
    pub(super) const fn remark(self, remark: &'static str) -> Self {
        Self { remark, ..self }
    }

    /// The same field with a remark: the cluster acts on it, and no node does.
    pub(super) const fn of_cluster(self, remark: &'static str) -> Self {
        Self { remark, is_of_cluster: true, ..self }
    }

    /// The gap of a runtime, if it has one.
    pub(super) fn gap_of(&self, column: Column) -> Option<&Gap> {
        self.gaps.iter().flatten().find(|gap| gap.columns.contains(&column))
    }
}

impl Unless {
    /// Whether `value`, a field of `object`, asks for nothing.
    pub(super) fn holds(self, value: &Value, object: &Map<String, Value>) -> bool {
        match self {
            Self::Never => false,
            Self::Is(texts) => match value {
                Value::String(text) => texts.contains(&text.as_str()),
                Value::Bool(_) | Value::Number(_) => texts.contains(&value.to_string().as_str()),
                _ => false,
            },
            Self::SameAs(name) => object.get(name) == Some(value),
        }
    }

    /// What the author of the pod can do.
    pub(super) fn advice(self) -> String {
        match self {
            Self::Never => "leave it out".to_owned(),
            Self::Is(texts) => format!("leave it out, or make it {}", texts.join(" or ")),
            Self::SameAs(name) => format!("leave it out, or make it the same as {name}"),
        }
    }
}

impl Column {
    /// The columns in the order of the page.
    #[cfg(test)]
    pub(super) const ALL: [Self; 4] = [Self::Process, Self::Hollow, Self::Cri, Self::Memory];

    /// The name of the column.
    #[cfg(test)]
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Hollow => "hollow",
            Self::Memory => "memory",
            Self::Cri => "cri",
        }
    }
}
