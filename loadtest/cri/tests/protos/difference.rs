//! What one protocol has that another one does not have, or has otherwise.

use std::collections::HashMap;

use prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};

/// The packages of protobuf itself, which both sides import.
const WELL_KNOWN: &str = "google.protobuf";

/// The differences, a line each. Messages are found by their names without packages: those are not on the wire, but
/// for the names of services.
pub(crate) fn differences(ours: &DescriptorPool, theirs: &DescriptorPool) -> Vec<String> {
    let mut found = Vec::new();
    let messages: HashMap<String, MessageDescriptor> =
        theirs.all_messages().map(|it| (name_of(it.full_name(), it.package_name()), it)).collect();
    for own in ours.all_messages().filter(|it| it.package_name() != WELL_KNOWN) {
        let name = name_of(own.full_name(), own.package_name());
        match messages.get(&name) {
            Some(other) => of_fields(&own, other, &mut found),
            None => found.push(format!("message {name} is not there")),
        }
    }
    let enums: HashMap<String, EnumDescriptor> =
        theirs.all_enums().map(|it| (name_of(it.full_name(), it.package_name()), it)).collect();
    for own in ours.all_enums().filter(|it| it.package_name() != WELL_KNOWN) {
        let name = name_of(own.full_name(), own.package_name());
        let Some(other) = enums.get(&name) else {
            found.push(format!("enum {name} is not there"));
            continue;
        };
        for value in own.values() {
            let number = other.get_value_by_name(value.name()).map(|it| it.number());
            if number != Some(value.number()) {
                let (value, own) = (value.name(), value.number());
                found.push(format!("{name}.{value}: {own} here, {number:?} there"));
            }
        }
    }
    for own in ours.services() {
        let Some(other) = theirs.get_service_by_name(own.full_name()) else {
            found.push(format!("service {} is not there", own.full_name()));
            continue;
        };
        for method in own.methods() {
            let there = other.methods().find(|it| it.name() == method.name());
            let (here, there) = (call(&method), there.as_ref().map(call));
            if there.as_deref() != Some(&here) {
                found.push(format!("{}: {here} here, {there:?} there", method.full_name()));
            }
        }
    }
    found
}

fn of_fields(own: &MessageDescriptor, other: &MessageDescriptor, found: &mut Vec<String>) {
    for field in own.fields() {
        let there = other.get_field(field.number());
        let (here, there) = (shape(&field), there.as_ref().map(shape));
        if there.as_deref() != Some(&here) {
            found.push(format!("{}: {here} here, {there:?} there", field.full_name()));
        }
    }
}

/// A field as it is written.
fn shape(field: &FieldDescriptor) -> String {
    let (name, number, kind) = (field.name(), field.number(), kind(&field.kind()));
    let of = match field.containing_oneof() {
        // Protobuf's own word for a field whose absence is known.
        Some(oneof) if oneof.is_synthetic() => " with presence".to_owned(),
        Some(oneof) => format!(" of {}", oneof.name()),
        None => String::new(),
    };
    format!("{:?} {kind} {name} = {number}{of}", field.cardinality())
}

/// The type of a field. That of a map is its entry, which is a message with a name by the field.
fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => name_of(message.full_name(), message.package_name()),
        Kind::Enum(kind) => name_of(kind.full_name(), kind.package_name()),
        scalar => format!("{scalar:?}"),
    }
}

fn call(method: &MethodDescriptor) -> String {
    let side = |message: MessageDescriptor, streams: bool| {
        let name = name_of(message.full_name(), message.package_name());
        if streams { format!("stream {name}") } else { name }
    };
    let asks = side(method.input(), method.is_client_streaming());
    let answers = side(method.output(), method.is_server_streaming());
    format!("{}({asks}) returns ({answers})", method.name())
}

fn name_of(full: &str, package: &str) -> String {
    full.strip_prefix(package).unwrap_or(full).trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

    use super::*;

    const THEIRS: &str = "syntax = \"proto3\"; package a.b;\n\
        service S { rpc Get(Get) returns (stream Got); rpc More(Get) returns (Got); }\n\
        message Get { string name = 1; repeated int32 sizes = 2; oneof by { bool all = 3; } }\n\
        message Got { map<string, Inner> of = 1; message Inner { E e = 1; } }\n\
        enum E { NONE = 0; ONE = 1; }";

    /// The only file of a protocol.
    struct Text(String);

    impl FileResolver for Text {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            File::from_source(name, &self.0)
        }
    }

    fn pool(text: &str) -> DescriptorPool {
        let mut files = ChainFileResolver::new();
        files.add(GoogleFileResolver::new());
        files.add(Text(text.to_owned()));
        let mut compiler = protox::Compiler::with_file_resolver(files);
        compiler.open_file("a.proto").expect("a protocol");
        compiler.descriptor_pool()
    }

    fn found(ours: &str) -> String {
        differences(&pool(ours), &pool(THEIRS)).join("; ")
    }

    #[test]
    fn a_part_of_a_protocol_is_no_difference() {
        assert_eq!(found(THEIRS), "");
        let part = "syntax = \"proto3\"; package a.b;\n\
            service S { rpc Get(Get) returns (stream Got); }\n\
            message Get { oneof by { bool all = 3; } } message Got {} enum E { NONE = 0; }";
        assert_eq!(found(part), "");
    }

    #[test]
    fn every_difference_is_named() {
        for (from, to, expected) in [
            ("string name = 1", "string title = 1", "a.b.Get.title"),
            ("string name = 1", "bytes name = 1", "a.b.Get.name"),
            ("string name = 1", "string name = 7", "a.b.Get.name"),
            ("string name = 1", "repeated string name = 1", "a.b.Get.name"),
            ("repeated int32", "int32", "a.b.Get.sizes"),
            ("string name = 1", "optional string name = 1", "a.b.Get.name"),
            ("oneof by { bool all = 3; }", "bool all = 3;", "a.b.Get.all"),
            ("map<string, Inner>", "map<int32, Inner>", "OfEntry.key"),
            ("ONE = 1", "ONE = 2", "E.ONE"),
            ("ONE = 1", "TWO = 1", "E.TWO"),
            ("(stream Got)", "(Got)", "a.b.S.Get"),
            ("rpc More", "rpc Less", "a.b.S.Less"),
            ("service S", "service T", "service a.b.T"),
            ("package a.b", "package a.c", "service a.c.S"),
        ] {
            let found = found(&THEIRS.replace(from, to));
            assert!(found.contains(expected), "{to}: {found:?}");
        }
        let more = format!("{THEIRS} message Other {{}} enum F {{ ZERO = 0; }}");
        assert_eq!(found(&more), "message Other is not there; enum F is not there");
    }
}
