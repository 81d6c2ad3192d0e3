//! Resources as events show them: as `get` does, and without secrets.

use serde_json::Value;

use ginnel_api::mask::MASK;
use ginnel_api::{Kind, Operation, Output, Resource, Shape};
use ginnel_store::{Document, StoreResult, View};

use super::payload::ChangeKind;

/// Shows what is stored of a resource.
type Show = dyn Fn(&View<'_>, &str) -> StoreResult<Value> + Send + Sync;

/// A kind of resources whose changes are events.
pub(crate) struct EventObject {
    /// The prefix of its identifiers.
    pub kind: &'static str,
    /// What its types of events begin with.
    name: String,
    resource: &'static Resource,
    shape: &'static Shape,
    show: Box<Show>,
}

impl EventObject {
    /// Resources that `Get` fetches; `show` makes of a stored one what `Get` returns.
    pub fn new<Get: Operation, D: Document>(
        resource: &'static Resource,
        show: impl Fn(&View<'_>, D) -> StoreResult<Get::Output> + Send + Sync + 'static,
    ) -> Self {
        let Output::One(shape) = Get::INFO.output else {
            unreachable!("{} does not return a resource", Get::INFO.path)
        };
        let show = move |view: &View<'_>, body: &str| {
            let shown = show(view, serde_json::from_str(body)?)?;
            Ok(serde_json::to_value(shown)?)
        };
        let name = snake_case(shape.name);
        Self { kind: D::PREFIX, name, resource, shape, show: Box::new(show) }
    }

    /// The resource, as operations name it.
    #[cfg(test)]
    pub fn resource_name(&self) -> &'static str {
        self.resource.name
    }

    /// The type of the events of such a change.
    pub fn event_type(&self, change: ChangeKind) -> String {
        format!("{}_{}.v0", self.name, change.name())
    }

    /// The types of events of these resources: one for each operation that may cause it.
    pub fn event_types(&self) -> impl Iterator<Item = String> {
        let has = |change: &ChangeKind| {
            self.resource.operations.iter().any(|info| info.name == change.operation())
        };
        ChangeKind::ALL.into_iter().filter(has).map(|change| self.event_type(change))
    }

    /// What an event shows of a resource, as it is stored now or was last.
    pub fn shown_value(&self, view: &View<'_>, body: &str) -> StoreResult<Value> {
        let mut shown = (self.show)(view, body)?;
        conceal_record(&mut shown, self.shape);
        Ok(shown)
    }
}

/// Leaves of a resource what events may say of it: texts that are declared to be public.
fn conceal_record(shown: &mut Value, shape: &Shape) {
    let Some(members) = shown.as_object_mut() else {
        *shown = MASK.into();
        return;
    };
    for field in shape.fields {
        let Some(member) = members.get_mut(field.name) else { continue };
        if conceal_value(member, &field.kind, field.is_public) == Concealed::Whole {
            members.shift_remove(field.name);
        }
    }
}

/// Whether anything of a value may be shown.
#[derive(PartialEq)]
enum Concealed {
    /// Some of it.
    InPart,
    /// Nothing of it.
    Whole,
}

fn conceal_value(shown: &mut Value, kind: &Kind, is_public: bool) -> Concealed {
    match (kind, &mut *shown) {
        (_, Value::Null) => {}
        (Kind::Secret, _) => return Concealed::Whole,
        (Kind::Object | Kind::Json, _) if !is_public => return Concealed::Whole,
        (Kind::Record(shape), _) => conceal_record(shown, shape),
        (Kind::List(item), Value::Array(items)) => {
            items.retain_mut(|one| conceal_value(one, item, is_public) == Concealed::InPart);
        }
        (Kind::Map(item), Value::Object(members)) => {
            members.retain(|_, one| conceal_value(one, item, is_public) == Concealed::InPart);
        }
        (Kind::Text { .. } | Kind::TextOrNumber | Kind::Bytes, text)
            if !is_public && text.as_str() != Some("") =>
        {
            *text = MASK.into();
        }
        (Kind::Text { .. } | Kind::TextOrNumber | Kind::Bytes, Value::String(_)) => {}
        (Kind::TextOrNumber | Kind::Integer | Kind::Number, Value::Number(_)) => {}
        (Kind::Bool, Value::Bool(_)) | (Kind::Time, Value::String(_)) => {}
        (Kind::Object | Kind::Json, _) => {}
        // What is not as it is declared may be anything.
        (_, other) => *other = MASK.into(),
    }
    Concealed::InPart
}

/// `IpPolicy` as `ip_policy`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ginnel_api::remote::edges::routes::HttpsEdgeRoute;
    use ginnel_api::remote::endpoints::Endpoint;
    use ginnel_api::remote::event_destinations::EventDestination;
    use ginnel_api::{Field, Typed};

    fn concealed(mut shown: Value, shape: &Shape) -> Value {
        conceal_record(&mut shown, shape);
        shown
    }

    #[test]
    fn nothing_of_a_policy_is_shown_but_that_there_is_one() {
        // The second of two equal keys counts; a reader of YAML refuses both.
        let twice = r#"{"enabled": true, "enabled": true, "on_http_request": ["swordfish"]}"#;
        let shown = json!({
            "id": "edghtsrt_1",
            "webhook_verification": {"provider": "github", "secret": "swordfish"},
            "policy": {"enabled": true, "inbound": [{
                "name": "swordfish",
                "expressions": ["req.headers['x-k'][0] == 'swordfish'"],
                "actions": [{"type": "add-headers", "config": {"headers": {"x": "swordfish"}}}],
            }]},
            "traffic_policy": {"enabled": true, "value": twice},
            "request_headers": {"add": {"x-upstream": "swordfish"}, "remove": ["x-a"]},
        });

        let route = concealed(shown, &HttpsEdgeRoute::SHAPE);
        let endpoint = concealed(json!({"traffic_policy": twice}), &Endpoint::SHAPE);

        assert!(!format!("{route}{endpoint}").contains("swordfish"), "{route} {endpoint}");
        let rule = json!({
            "name": MASK,
            "expressions": [MASK],
            "actions": [{"type": "add-headers"}],
        });
        assert_eq!(
            route,
            json!({
                "id": "edghtsrt_1",
                "webhook_verification": {"provider": "github"},
                "policy": {"enabled": true, "inbound": [rule]},
                "traffic_policy": {"enabled": true, "value": MASK},
                "request_headers": {"add": {"x-upstream": MASK}, "remove": ["x-a"]},
            })
        );
        assert_eq!(endpoint, json!({"traffic_policy": MASK}));
    }

    #[test]
    fn where_other_events_go_is_not_shown() {
        let shown = json!({"target": {"webhook": {"url": "https://hooks.test/T0/swordfish"}}});

        let destination = concealed(shown, &EventDestination::SHAPE);

        assert_eq!(destination, json!({"target": {"webhook": {"url": MASK}}}));
    }

    #[test]
    fn texts_that_are_public_are_shown_as_they_are() {
        let shown = json!({
            "description": "office: 3rd floor",
            "metadata": "{\"team\": [1, 2]}",
            "url": "https://app.test",
            "traffic_policy": "",
            "bindings": ["public"],
            "port": 443,
            "domain": {"id": "rd_1", "uri": "http://api.test/reserved_domains/rd_1"},
        });

        assert_eq!(concealed(shown.clone(), &Endpoint::SHAPE), shown);
    }

    #[test]
    fn a_field_that_does_not_say_that_it_is_public_is_masked() {
        const fn field(name: &'static str, kind: Kind, is_public: bool) -> Field {
            Field { name, doc: "", kind, required: false, is_public }
        }
        // A new resource whose fields have the names of public fields of other resources.
        const FIELDS: &[Field] = &[
            field("shown", <Option<String> as Typed>::KIND, true),
            field("description", <Option<String> as Typed>::KIND, false),
            field("names", <Option<Vec<String>> as Typed>::KIND, false),
        ];
        const NEW: Shape = Shape { name: "NewResource", file: "", doc: "", fields: FIELDS };
        let shown = json!({"shown": "a", "description": "swordfish", "names": ["swordfish"]});

        let shown = concealed(shown, &NEW);

        assert_eq!(shown, json!({"shown": "a", "description": MASK, "names": [MASK]}));
    }

    #[test]
    fn what_is_not_as_it_is_declared_is_masked() {
        let shown = json!({
            "bindings": "swordfish",
            "url": {"a": "swordfish"},
            "domain": "swordfish",
            "created_at": ["swordfish"],
            "port": 443,
        });

        let shown = concealed(shown, &Endpoint::SHAPE);

        assert!(!shown.to_string().contains("swordfish"), "{shown}");
        assert_eq!((&shown["port"], &shown["url"]), (&json!(443), &json!(MASK)));
    }

    #[test]
    fn types_have_the_names_of_the_results_of_operations() {
        assert_eq!(snake_case("IpPolicy"), "ip_policy");
        assert_eq!(snake_case("HttpsEdgeRoute"), "https_edge_route");
    }
}
