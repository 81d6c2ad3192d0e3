//! `basic-auth`: ask for a user name and a password.

use super::super::action::Action;
use super::super::config::Config;
use super::super::headers::is_value;
use super::super::problem::{Place, code};
use super::super::template::Template;

/// How long a realm may be, in bytes.
const REALM: usize = 128;

/// Lets only visitors in who know a password.
#[derive(Debug)]
pub struct BasicAuth {
    /// What is known: `user:password`, where the first colon separates.
    pub credentials: Vec<Template>,
    /// What the visitor is told to log in to.
    pub realm: String,
    /// Whether the verdict counts; without, it is only recorded.
    pub enforce: bool,
}

impl Action for BasicAuth {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(BasicAuth {
        credentials: credentials(config),
        realm: realm(config),
        enforce: config.truth("enforce", true),
    })
}

fn credentials(config: &mut Config<'_>) -> Vec<Template> {
    let texts = config.texts("credentials", 1..=10);
    texts.into_iter().map(|(place, text)| credential(config, &place, text)).collect()
}

/// The message never repeats what it is about: it is a secret.
fn credential(config: &mut Config<'_>, place: &Place, text: &str) -> Template {
    let template = config.checker().template(place, text);
    let Some(fixed) = template.fixed().filter(|_| !text.contains("${")) else { return template };
    let Some((user, password)) = fixed.split_once(':') else {
        config.refuse_at(place, code::VALUE, "a credential is user:password");
        return template;
    };
    if user.is_empty() {
        config.refuse_at(place, code::USER_NAME, "the user name is empty");
    }
    if !(8..=128).contains(&password.chars().count()) {
        let message = "the password must have from 8 to 128 characters";
        config.refuse_at(place, code::PASSWORD, message);
    }
    template
}

fn realm(config: &mut Config<'_>) -> String {
    let realm = config.text("realm").unwrap_or("ginnel");
    if realm.len() > REALM {
        config.refuse("realm", code::LENGTH, format!("realm is longer than {REALM} bytes"));
    }
    if !is_value(realm) {
        config.refuse("realm", code::HEADER_VALUE, "realm may not hold control characters");
    }
    realm.to_owned()
}
