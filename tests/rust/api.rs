//! Walks the table of operations.

use std::collections::HashSet;

use ginnel_api::remote::{self, api_keys, backends, edges};
use ginnel_api::{
    CallArguments, Info, Kind, Number, Operation, Output, ParameterLocation, TextOrNumber, Verb,
    encode_arguments, encode_operation, local,
};

use serde_json::{Map, Value, json};

/// A value of each kind.
fn sample(kind: &Kind) -> Value {
    match kind {
        Kind::Text { .. } | Kind::TextOrNumber | Kind::Secret => json!("text"),
        Kind::Time => json!("2026-01-02T03:04:05Z"),
        Kind::Bytes => json!("AAEC"),
        Kind::Bool => json!(false),
        Kind::Integer => json!(0),
        Kind::Number => json!(0.5),
        Kind::Json => json!([1, null]),
        Kind::Object => json!({"a": 1}),
        Kind::List(item) => json!([sample(item)]),
        Kind::Map(item) => json!({"k": sample(item)}),
        Kind::Record(shape) => {
            shape.fields.iter().map(|f| (f.name.to_owned(), sample(&f.kind))).collect()
        }
    }
}

/// The operations of both APIs.
fn operations() -> impl Iterator<Item = &'static Info> {
    remote::operations().chain(local::operations())
}

#[test]
fn every_operation_is_documented_and_named_once() {
    let mut names = HashSet::new();

    for info in operations() {
        let api = local::operations().any(|local| std::ptr::eq(local, info));
        let names_of = (api, info.resource, info.name);
        assert!(names.insert(names_of), "{}.{}", info.resource, info.name);
        assert!(info.doc.trim().ends_with('.'), "{}.{}", info.resource, info.name);
        if let Output::One(shape) | Output::Page { item: shape, .. } = info.output {
            assert!(
                shape.fields.iter().all(|field| field.doc.trim().ends_with('.')),
                "{}",
                shape.name
            );
        }
        for name in info.path_parameters() {
            assert!(info.parameters.iter().any(|p| p.name == name && p.required), "{}", info.path);
        }
    }
}

/// Resources whose names do not say that they are below another.
const WITHIN_OTHERS: &[(&str, &str)] = &[
    ("event_sources", "event_subscriptions.sources"),
    ("application_users", "app.users"),
    ("application_sessions", "app.sessions"),
];

#[test]
fn names_mirror_paths() {
    for info in remote::operations() {
        let path = info.path.split('/').filter(|s| !s.is_empty() && !s.starts_with('{'));
        let path = path.collect::<Vec<_>>().join(".");
        let action = format!("{}.{}", info.resource, info.name);
        // `delete_policy` lets go of a part of a row, whose path ends with `policy`.
        let part = info.name.strip_prefix("delete_");
        let is_part = part.is_some_and(|part| {
            let rest = path.strip_prefix(&format!("{}.", info.resource));
            rest.is_some_and(|rest| rest.ends_with(part))
        });
        // A list of what a row holds.
        let is_inside = action == "vaults.get_secrets_by_vault" && path == "vaults.secrets";
        let is_within = is_inside || WITHIN_OTHERS.contains(&(info.resource, path.as_str()));
        let is_named = path == info.resource || path == action || is_part || is_within;
        assert!(is_named, "{path} is not {action}");
    }
}

#[test]
fn every_argument_arrives_where_its_place_is() {
    for info in operations() {
        let arguments: Map<String, Value> =
            info.parameters.iter().map(|p| (p.name.to_owned(), sample(&p.kind))).collect();

        let call = encode_arguments(info, arguments.clone()).unwrap();

        let body: Map<String, Value> =
            call.body.map(|b| serde_json::from_slice(&b).unwrap()).unwrap_or_default();
        for parameter in info.parameters {
            let there = match info.parameter_location(parameter.name) {
                ParameterLocation::Path => call.target.split('/').any(|segment| segment == "text"),
                ParameterLocation::Query => call.target.contains(&format!("{}=", parameter.name)),
                ParameterLocation::Body => {
                    body.get(parameter.name) == arguments.get(parameter.name)
                }
            };
            assert!(there, "{} in {}.{}", parameter.name, info.resource, info.name);
        }
        let is_repeated =
            info.method == Verb::PATCH || info.parameter_location("id") == ParameterLocation::Body;
        let repeated = is_repeated && arguments.contains_key("id");
        assert_eq!(body.contains_key("id"), repeated, "{}", info.path);
    }
}

#[test]
fn a_tunnel_without_a_name_has_an_address() {
    let get = local::tunnels::Get { name: String::new() };

    assert_eq!(encode_operation(&get).unwrap().target, "/tunnels/");
}

#[test]
fn an_identifier_cannot_leave_its_segment() {
    let get = |id: &str| encode_operation(&api_keys::Get { id: id.into() });

    assert_eq!(get("a/../b?x=1#y").unwrap().target, "/api_keys/a%2F..%2Fb%3Fx%3D1%23y");
    assert_eq!(get("").unwrap_err().to_string(), "id: must not be empty");
    assert_eq!(get("..").unwrap_err().to_string(), "id: must not be a relative path segment");
}

#[test]
fn what_is_not_given_is_left_out_and_what_is_empty_is_sent() {
    let update = backends::failover::Update {
        id: "bkdfo_x".into(),
        metadata: Some("".into()),
        backends: Some(vec![]),
        ..Default::default()
    };

    let call = encode_operation(&update).unwrap();

    assert_eq!(call.body.unwrap(), r#"{"id":"bkdfo_x","metadata":"","backends":[]}"#);
}

#[test]
fn a_number_has_a_fraction_only_where_it_needs_one() {
    let written = |number| serde_json::to_string(&Number(number)).unwrap();

    assert_eq!(
        [0.0, 3e6, -2.0, 0.5, 1e300].map(written),
        ["0", "3000000", "-2", "0.5", "1e+300"].map(str::to_owned)
    );
}

#[test]
fn a_port_may_be_given_as_a_number_or_as_text() {
    let read = |value: Value| serde_json::from_value::<TextOrNumber>(value);

    assert_eq!(read(json!(80)).unwrap(), read(json!("80")).unwrap());
    for wrong in [json!(8.5), json!(true), json!([80])] {
        assert!(read(wrong).is_err());
    }
}

#[test]
fn limits_are_counted_in_bytes() {
    let create = |description: String| {
        encode_operation(&api_keys::Create {
            description: Some(description.into()),
            ..Default::default()
        })
    };

    assert!(create("é".repeat(127)).is_ok());
    assert_eq!(
        create("é".repeat(128)).unwrap_err().to_string(),
        "description: is 256 bytes long, the limit is 255"
    );
}

#[test]
fn nested_values_keep_their_order() {
    let arguments = json!({
        "edge_id": "edghts_x", "id": "edghtsrt_y",
        "inbound": [{"name": "n", "actions": [{"type": "deny", "config": {"z": 1, "a": 2}}]}],
    });
    let mut arguments = CallArguments(arguments.as_object().unwrap().clone());
    let replace = edges::route_modules::policy::Replace::from_arguments(&mut arguments).unwrap();

    let call = encode_operation(&replace).unwrap();

    assert_eq!(call.target, "/edges/https/edghts_x/routes/edghtsrt_y/policy");
    assert!(String::from_utf8(call.body.unwrap().to_vec()).unwrap().contains(r#"{"z":1,"a":2}"#));
}
