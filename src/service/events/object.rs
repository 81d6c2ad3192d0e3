//! Resources as events show them: as `get` does, and without secrets.

use serde_json::Value;

use super::payload::ChangeKind;
use crate::api::{Kind, Operation, Output, Resource, Shape, mask, yaml};
use crate::service::store::{Document, StoreError, View};

/// Shows what is stored of a resource.
type Show = dyn Fn(&View<'_>, &str) -> Result<Value, StoreError> + Send + Sync;

/// A kind of resources whose changes are events.
pub(in crate::service) struct EventObject {
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
        show: impl Fn(&View<'_>, D) -> Result<Get::Output, StoreError> + Send + Sync + 'static,
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
    pub fn types(&self) -> impl Iterator<Item = String> {
        let has = |change: &ChangeKind| {
            self.resource.operations.iter().any(|info| info.name == change.operation())
        };
        ChangeKind::ALL.into_iter().filter(has).map(|change| self.event_type(change))
    }

    /// What an event shows of a resource, as it is stored now or was last.
    pub fn shown(&self, view: &View<'_>, body: &str) -> Result<Value, StoreError> {
        let mut shown = (self.show)(view, body)?;
        conceal_record(&mut shown, self.shape);
        Ok(shown)
    }
}

/// Removes what is declared as a secret, whatever its name, and masks what may be one in the fields of
/// which no more is known.
fn conceal_record(shown: &mut Value, shape: &Shape) {
    let Some(members) = shown.as_object_mut() else { return };
    for field in shape.fields {
        if matches!(field.kind, Kind::Secret) {
            members.shift_remove(field.name);
        } else if let Some(member) = members.get_mut(field.name) {
            conceal(member, &field.kind);
        }
    }
}

fn conceal(shown: &mut Value, kind: &Kind) {
    match (kind, &mut *shown) {
        (Kind::Record(shape), _) => conceal_record(shown, shape),
        (Kind::List(item), Value::Array(items)) => {
            items.iter_mut().for_each(|one| conceal(one, item));
        }
        (Kind::Map(_) | Kind::Object | Kind::Json, _) => mask::value(shown),
        (Kind::Text { .. }, Value::String(text)) => conceal_document(text),
        _ => {}
    }
}

/// Masks the secrets of a text that is a document, such as a traffic policy; other texts stay.
fn conceal_document(text: &mut String) {
    if !text.contains([':', '{', '[']) {
        return;
    }
    let Ok(document @ (Value::Object(_) | Value::Array(_))) = yaml::read::<Value>(text) else {
        return;
    };
    let mut masked = document.clone();
    mask::value(&mut masked);
    if masked != document {
        *text = masked.to_string();
    }
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
    use crate::api::remote::edges::routes::HttpsEdgeRoute;
    use crate::api::remote::endpoints::Endpoint;

    fn concealed(mut shown: Value, shape: &Shape) -> Value {
        conceal_record(&mut shown, shape);
        shown
    }

    #[test]
    fn secrets_are_removed_by_their_declaration_and_masked_in_documents() {
        let policy = "on_http_request: [{actions: [{type: basic-auth, config: {credentials: ['me:swordfish']}}]}]";
        let shown = json!({
            "id": "edghtsrt_1",
            "webhook_verification": {"provider": "github", "secret": "swordfish"},
            "policy": {"inbound": [{"actions": [
                {"type": "verify-webhook", "config": {"provider": "x", "secret": "swordfish"}},
            ]}]},
            "traffic_policy": {"value": policy},
        });

        let route = concealed(shown, &HttpsEdgeRoute::SHAPE);
        let endpoint = concealed(json!({"traffic_policy": policy}), &Endpoint::SHAPE);

        assert!(!format!("{route}{endpoint}").contains("swordfish"), "{route} {endpoint}");
        assert_eq!(route["webhook_verification"], json!({"provider": "github"}));
        let value = route["traffic_policy"]["value"].as_str().unwrap_or_default();
        assert!(value.contains("basic-auth"), "{value}");
    }

    #[test]
    fn what_is_no_secret_is_shown_as_it_is() {
        let shown = json!({
            "description": "office: 3rd floor",
            "metadata": "{\"team\": [1, 2]}",
            "traffic_policy": "on_http_request:\n  - actions:\n      - type: deny\n",
        });

        assert_eq!(concealed(shown.clone(), &Endpoint::SHAPE), shown);
    }

    #[test]
    fn types_have_the_names_of_the_results_of_operations() {
        assert_eq!(snake_case("IpPolicy"), "ip_policy");
        assert_eq!(snake_case("HttpsEdgeRoute"), "https_edge_route");
    }
}
