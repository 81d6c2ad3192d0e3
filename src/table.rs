//! The table of operations as Python sees it: by name for calls, as plain data for generators.

use std::collections::HashMap;
use std::sync::OnceLock;

use pyo3::exceptions::PyLookupError;
use pyo3::prelude::*;
use serde_json::{Value, json};

use ginnel_api::{Field, Info, Kind, Output, Resource, Shape, documentation, local, remote};
use ginnel_service::config::{ServeConfig, embedded_settings};

/// What stands before the names of operations of the agent API.
const AGENT: &str = "agent.";

/// The operation of that name, such as `api_keys.get` or `agent.tunnels.get`.
pub(super) fn find_operation(name: &str) -> PyResult<&'static Info> {
    static BY_NAME: OnceLock<HashMap<String, &'static Info>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        let named = |prefix: &'static str| {
            move |info: &'static Info| (format!("{prefix}{}.{}", info.resource, info.name), info)
        };
        remote::operations().map(named("")).chain(local::operations().map(named(AGENT))).collect()
    });
    let found = by_name.get(name).copied();
    found.ok_or_else(|| PyLookupError::new_err(format!("no operation {name}")))
}

/// The type of the wire that a class of that name and module stands for, such as `ApiKey`. Both APIs
/// have some names, such as `IpRestriction`, for types of their own.
pub(super) fn find_shape(name: &str, module: &str) -> PyResult<&'static Shape> {
    let remote = || shapes_of(remote::operations());
    let local = || shapes_of(local::operations());
    let is_local = module.starts_with("ginnel.local");
    let (first, second) = if is_local { (local(), remote()) } else { (remote(), local()) };
    let found = first.into_iter().chain(second).find(|shape| shape.name == name);
    found.ok_or_else(|| PyLookupError::new_err(format!("no type {name}")))
}

/// The settings of a service, as JSON.
#[pyfunction]
pub(super) fn service_settings() -> String {
    let settings = embedded_settings().map(|setting| {
        let default = setting.display_value(&ServeConfig::default());
        json!({
            "key": setting.key,
            "keyword": setting.keyword,
            "value": setting.value_name,
            "doc": setting.doc,
            "default": default.unwrap_or_else(|| setting.unset.to_owned()),
            "range": setting.written_bounds(),
            "choices": setting.field.choices,
        })
    });
    Value::from_iter(settings).to_string()
}

/// The resources of an API, `remote` or `local`, with their operations, as JSON.
#[pyfunction]
pub(super) fn operations(api: &str) -> PyResult<String> {
    let resources = api_resources(api)?.into_iter().map(|resource| {
        let operations = resource.operations.iter().map(|info| {
            let parameters = info.parameters.iter().map(|parameter| {
                let mut field = describe_field(parameter);
                field["doc"] = documentation::unindent_doc(info.parameter_doc(parameter)).into();
                field["place"] =
                    format!("{:?}", info.parameter_location(parameter.name)).to_lowercase().into();
                field
            });
            let output = match info.output {
                Output::Nothing => json!(null),
                Output::One(shape) => json!({"one": shape.name}),
                Output::Page { field, item } => json!({"page": item.name, "field": field}),
            };
            json!({
                "name": info.name,
                "doc": documentation::unindent_doc(info.doc),
                "method": info.method.as_str(),
                "path": info.path,
                "parameters": parameters.collect::<Vec<_>>(),
                "output": output,
                "issues_secret": info.issues_secret,
            })
        });
        json!({
            "name": resource.name,
            "file": resource.file,
            "doc": documentation::unindent_doc(resource.doc),
            "operations": operations.collect::<Vec<_>>(),
        })
    });
    Ok(Value::from_iter(resources).to_string())
}

fn api_resources(api: &str) -> PyResult<Vec<&'static Resource>> {
    match api {
        "remote" => Ok(remote::resources().collect()),
        "local" => Ok(local::resources().collect()),
        _ => Err(PyLookupError::new_err(format!("no API {api}"))),
    }
}

/// The types of the wire of an API, as JSON.
#[pyfunction]
pub(super) fn shapes(api: &str) -> PyResult<String> {
    let operations = api_resources(api)?.into_iter().flat_map(|it| it.operations.iter().copied());
    let shapes = shapes_of(operations).into_iter().map(|shape| {
        json!({
            "name": shape.name,
            "file": shape.file,
            "doc": documentation::unindent_doc(shape.doc),
            "fields": shape.fields.iter().map(describe_field).collect::<Vec<_>>(),
        })
    });
    Ok(Value::from_iter(shapes).to_string())
}

fn describe_field(field: &Field) -> Value {
    json!({
        "name": field.name,
        "doc": documentation::unindent_doc(field.doc),
        "kind": describe_kind(&field.kind),
        "required": field.required,
    })
}

fn describe_kind(kind: &Kind) -> Value {
    match kind {
        Kind::Text { .. } => json!("text"),
        Kind::TextOrNumber => json!("text or number"),
        Kind::Secret => json!("secret"),
        Kind::Time => json!("time"),
        Kind::Bytes => json!("bytes"),
        Kind::Bool => json!("bool"),
        Kind::Integer => json!("integer"),
        Kind::Number => json!("number"),
        Kind::Json => json!("json"),
        Kind::Object => json!("object"),
        Kind::List(item) => json!({"list": self::describe_kind(item)}),
        Kind::Map(item) => json!({"map": self::describe_kind(item)}),
        Kind::Record(shape) => json!({"record": shape.name}),
    }
}

/// Every type that these operations take or give, those inside before those around.
fn shapes_of(operations: impl Iterator<Item = &'static Info>) -> Vec<&'static Shape> {
    let mut found = Vec::new();
    for info in operations {
        for parameter in info.parameters {
            collect_kind(&parameter.kind, &mut found);
        }
        if let Output::One(shape) | Output::Page { item: shape, .. } = info.output {
            collect_shape(shape, &mut found);
        }
    }
    found
}

fn collect_kind(kind: &Kind, found: &mut Vec<&'static Shape>) {
    match kind {
        Kind::List(item) | Kind::Map(item) => collect_kind(item, found),
        Kind::Record(shape) => collect_shape(shape, found),
        _ => {}
    }
}

fn collect_shape(shape: &'static Shape, found: &mut Vec<&'static Shape>) {
    if found.iter().any(|known| known.name == shape.name) {
        return;
    }
    shape.fields.iter().for_each(|field| collect_kind(&field.kind, found));
    found.push(shape);
}
