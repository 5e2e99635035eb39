//! The page `ops/docs/pods.md`, written from the table.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::api::types_of_the_table;
use super::field::{Column, Effect, Field, Type, Unless};

/// The page, relative to this crate.
const PAGE: &str = "../../ops/docs/pods.md";

/// Set to write the page instead of comparing it.
const WRITE: &str = "HEADWATER_WRITE_PAGES";

const INTRODUCTION: &str = "\
# Fields of a pod

What each runtime does with every field of a pod's spec. The table that decides at the edge writes this
page (`HEADWATER_WRITE_PAGES=1 cargo test -p headwater-edged --lib pod_fields`), and a test compares the
table with the Kubernetes API in use, 1.36. [edged.md](edged.md) has the modules that do it.

- **honoured**: the field does what the API says.
- **refused**: safety or the meaning of the pod depends on the field, and this runtime cannot do it. The
  container waits with `CreateContainerConfigError`, the field's path and what to do; a field of the pod
  keeps all containers waiting. A running container of an earlier version runs on until it ends.
- **noted**: nothing is lost without the field. The condition `headwater/SpecHonoured` of the pod's status is
  `False` and names it, and `headwater describe pod` prints it.

A value that asks for what happens anyway is honoured: the table names it after *unless*. An empty value
asks for nothing. *By field* means that the fields of the value are decided one by one. A field that the
table does not name is of a later API, and noted. With `cri` the setting `forbid` in `[cri]` refuses what it
names, whatever the table says: `privileged`, `hostPath`, `hostNetwork`, `hostPID`, `hostIPC`.

| runtime | containers are |
|---|---|
| `process` | processes of the host, without images and isolation |
| `hollow` | without processes, for load tests: a field about processes has nothing to act on, and counts as honoured |
| `cri` | containers of images, in a runtime such as containerd: what the runtime or the machine lacks is refused before anything runs |
| `memory` | values, in tests: the twin of a container runtime |
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for of in types_of_the_table() {
        section(&mut page, of);
    }
    page
}

fn section(page: &mut String, of: &Type) {
    let _ = write!(page, "\n## {}\n\n", of.name);
    let columns = Column::ALL.map(|column| format!("`{}`", column.as_str()));
    let _ = writeln!(page, "| field | {} | |\n|---|---|---|---|---|---|", columns.join(" | "));
    for field in of.fields {
        let cells = Column::ALL.map(|column| cell(field, column));
        let name = match field.of {
            Some(of) => format!("[`{}`](#{})", field.name, of.name.to_lowercase()),
            None => format!("`{}`", field.name),
        };
        let mut why: Vec<&str> = field.gaps.iter().flatten().map(|gap| gap.why).collect();
        if !field.remark.is_empty() {
            why.push(field.remark);
        }
        let why = why.join("; ");
        let _ = writeln!(page, "| {name} | {} | {why} |", cells.join(" | "));
    }
}

fn cell(field: &Field, column: Column) -> String {
    let Some(gap) = field.gap_of(column) else {
        return if field.of.is_some() { "by field" } else { "honoured" }.to_owned();
    };
    let effect = match gap.effect {
        Effect::Refused => "refused",
        Effect::Noted => "noted",
    };
    match gap.unless {
        Unless::Never => effect.to_owned(),
        Unless::Is(texts) => {
            let texts: Vec<String> = texts.iter().map(|text| format!("`{text}`")).collect();
            format!("{effect} unless {}", texts.join(", "))
        }
        Unless::SameAs(name) => format!("{effect} unless as `{name}`"),
    }
}

#[test]
fn the_page_of_fields_is_what_the_table_decides() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, page()).expect("the page can be written");
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == page(),
        "ops/docs/pods.md differs from the table: set {WRITE}=1 to write it"
    );
}
