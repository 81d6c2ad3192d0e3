//! The tables of operations as an OpenAPI 3.1 document.

use serde_json::{Map, Value, json};

use super::{Field, Info, Kind, Output, ParameterLocation, Resource, Shape, documentation};

/// Which API a document describes, in the words of its `info` object.
#[derive(Debug, Clone, Copy)]
pub struct ApiDescription<'a> {
    /// The title of the API.
    pub title: &'a str,
    /// Human-readable description of the API.
    pub description: &'a str,
    /// The address below which the paths are.
    pub server: &'a str,
    /// Whether calls carry an API key as a bearer token.
    pub authorized: bool,
}

/// Describes all operations of these resources, with every type they take or give.
pub fn build_document<'a>(
    about: ApiDescription<'_>,
    resources: impl Iterator<Item = &'a Resource>,
) -> Value {
    let mut document = OpenApiDocument::default();
    for resource in resources {
        document.add_resource(resource);
    }
    document.finish(about)
}

#[derive(Default)]
struct OpenApiDocument {
    tags: Vec<Value>,
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

impl OpenApiDocument {
    fn add_resource(&mut self, resource: &Resource) {
        self.tags.push(
            json!({"name": resource.name, "description": documentation::unindent_doc(resource.doc)}),
        );
        for info in resource.operations {
            let operation = self.describe_operation(info);
            let path = self.paths.entry(info.path).or_insert_with(|| json!({}));
            path[info.method.as_str().to_lowercase()] = operation;
        }
    }

    fn describe_operation(&mut self, info: &Info) -> Value {
        let (summary, more) = documentation::split_summary(info.doc);
        let mut operation = json!({
            "operationId": format!("{}.{}", info.resource, info.name),
            "tags": [info.resource],
            "summary": summary,
            "parameters": self.describe_parameters(info),
            "responses": {
                info.success_status().to_string(): self.describe_response(info),
                "default": {"$ref": "#/components/responses/Error"},
            },
        });
        if !more.is_empty() {
            operation["description"] = more.into();
        }
        if info.method.has_body() {
            operation["requestBody"] = self.request_body(info);
        }
        operation
    }

    fn describe_parameters(&mut self, info: &Info) -> Vec<Value> {
        let outside = info
            .parameters
            .iter()
            .filter(|field| info.parameter_location(field.name) != ParameterLocation::Body);
        let parameter = |field: &Field| {
            let place = if info.parameter_location(field.name) == ParameterLocation::Path {
                "path"
            } else {
                "query"
            };
            json!({
                "name": field.name,
                "in": place,
                "required": field.required,
                "description": documentation::unindent_doc(info.parameter_doc(field)),
                "schema": self.kind_schema(&field.kind),
            })
        };
        outside.map(parameter).collect()
    }

    fn request_body(&mut self, info: &Info) -> Value {
        let inside = || {
            info.parameters
                .iter()
                .filter(|field| info.parameter_location(field.name) == ParameterLocation::Body)
        };
        let properties = inside().map(|field| {
            let mut schema = self.kind_schema(&field.kind);
            set_description(&mut schema, info.parameter_doc(field));
            (field.name.to_owned(), schema)
        });
        let properties = properties.collect::<Map<_, _>>();
        let required = required_names(inside());
        let mut schema = json!({"type": "object", "properties": properties});
        let needed = !required.is_empty();
        if needed {
            schema["required"] = required.into();
        }
        json!({"required": needed, "content": {"application/json": {"schema": schema}}})
    }

    fn describe_response(&mut self, info: &Info) -> Value {
        let schema = match info.output {
            Output::Nothing => return json!({"description": "Success; there is no body."}),
            Output::One(shape) => self.schema_reference(shape),
            Output::Page { field, item } => self.page_schema(field, item),
        };
        json!({"description": "Done.", "content": {"application/json": {"schema": schema}}})
    }

    fn page_schema(&mut self, field: &str, item: &'static Shape) -> Value {
        json!({
            "type": "object",
            "required": [field, "uri", "next_page_uri"],
            "properties": {
                field: {"type": "array", "items": self.schema_reference(item)},
                "uri": {"type": "string", "description": "The address of the list."},
                "next_page_uri": {
                    "type": ["string", "null"],
                    "description": "The address of the next page; null on the last.",
                },
            },
        })
    }

    fn kind_schema(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::Text { max: None } => json!({"type": "string"}),
            Kind::Text { max: Some(max) } => {
                json!({"type": "string", "maxLength": max, "x-max-bytes": max})
            }
            Kind::TextOrNumber => json!({"type": ["string", "integer"]}),
            Kind::Secret => json!({"type": "string", "format": "password"}),
            Kind::Time => json!({"type": "string", "format": "date-time"}),
            Kind::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Integer => json!({"type": "integer", "format": "int64"}),
            Kind::Number => json!({"type": "number"}),
            Kind::Json => json!({}),
            Kind::Object => json!({"type": "object"}),
            Kind::List(item) => json!({"type": "array", "items": self.kind_schema(item)}),
            Kind::Map(item) => {
                json!({"type": "object", "additionalProperties": self.kind_schema(item)})
            }
            Kind::Record(shape) => self.schema_reference(shape),
        }
    }

    fn schema_reference(&mut self, shape: &'static Shape) -> Value {
        if !self.schemas.contains_key(shape.name) {
            // Reserved before its fields are walked: a type may hold itself.
            self.schemas.insert(shape.name.to_owned(), Value::Null);
            let schema = self.record_schema(shape);
            self.schemas.insert(shape.name.to_owned(), schema);
        }
        json!({"$ref": format!("#/components/schemas/{}", shape.name)})
    }

    fn record_schema(&mut self, shape: &'static Shape) -> Value {
        let properties = shape.fields.iter().map(|field| {
            let mut schema = self.kind_schema(&field.kind);
            if !field.required {
                schema = json!({"anyOf": [schema, {"type": "null"}]});
            }
            set_description(&mut schema, field.doc);
            (field.name.to_owned(), schema)
        });
        let properties = properties.collect::<Map<_, _>>();
        json!({
            "type": "object",
            "description": documentation::unindent_doc(shape.doc),
            "properties": properties,
            "required": required_names(shape.fields.iter()),
        })
    }

    fn finish(self, about: ApiDescription<'_>) -> Value {
        let mut document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": about.title,
                "version": env!("CARGO_PKG_VERSION"),
                "description": about.description,
            },
            "servers": [{"url": about.server}],
            "tags": self.tags,
            "paths": self.paths,
            "components": {"schemas": self.schemas, "responses": {"Error": error_response()}},
        });
        if about.authorized {
            document["security"] = json!([{"api_key": []}]);
            document["components"]["securitySchemes"] =
                json!({"api_key": {"type": "http", "scheme": "bearer"}});
        }
        document
    }
}

/// The body of every error, as both APIs have it.
fn error_response() -> Value {
    let schema = json!({
        "type": "object",
        "required": ["status_code", "msg"],
        "properties": {
            "error_code": {"type": ["string", "integer"], "description": "Recent errors, for programs."},
            "status_code": {"type": "integer"},
            "msg": {"type": "string", "description": "Recent errors, for people."},
            "details": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    });
    json!({"description": "Refused.", "content": {"application/json": {"schema": schema}}})
}

fn required_names<'a>(fields: impl Iterator<Item = &'a Field>) -> Vec<&'static str> {
    fields.filter(|field| field.required).map(|field| field.name).collect()
}

fn set_description(schema: &mut Value, doc: &str) {
    if !doc.trim().is_empty() {
        schema["description"] = documentation::unindent_doc(doc).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote;

    const ABOUT: ApiDescription<'_> = ApiDescription {
        title: "t",
        description: "d",
        server: "http://localhost",
        authorized: true,
    };

    fn made() -> Value {
        build_document(ABOUT, remote::resources())
    }

    #[test]
    fn every_operation_of_the_table_is_described() {
        let made = made();

        for info in remote::operations() {
            let operation = &made["paths"][info.path][info.method.as_str().to_lowercase()];
            assert_eq!(operation["operationId"], format!("{}.{}", info.resource, info.name));
            assert!(!operation["responses"][info.success_status().to_string()].is_null());
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(value: &Value, root: &Value) {
            if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
                let place = reference.trim_start_matches('#');
                let target = root.pointer(place);
                assert!(target.is_some_and(|target| !target.is_null()), "{reference}");
            }
            match value {
                Value::Object(members) => members.values().for_each(|member| walk(member, root)),
                Value::Array(items) => items.iter().for_each(|item| walk(item, root)),
                _ => {}
            }
        }
        let made = made();

        walk(&made, &made);
    }

    #[test]
    fn a_limit_in_bytes_is_told() {
        let made = made();

        let body = &made["paths"]["/api_keys"]["post"]["requestBody"];
        let description =
            &body["content"]["application/json"]["schema"]["properties"]["description"];
        assert_eq!(description["x-max-bytes"], 255);
    }
}
