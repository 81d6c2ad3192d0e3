//! Who somebody is, in the words of the issuer.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// How many groups of somebody are kept.
const MAX_GROUPS: usize = 200;

/// Who somebody is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The name that the issuer never gives to anybody else.
    pub subject: String,
    /// The email address.
    pub email: Option<String>,
    /// Whether the issuer has verified that the address is theirs; none where it does not say.
    pub email_verified: Option<bool>,
    /// What they are called.
    pub name: Option<String>,
    /// The name that they log in with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The groups that they belong to; none where it does not say, which is not the same as no group.
    pub groups: Option<Vec<String>>,
}

impl Identity {
    /// What claims say; none where they do not say who it is.
    pub fn from_claims(claims: &Json) -> Option<Self> {
        let text = |name: &str| {
            let text = claims.get(name)?.as_str()?;
            Some(text.to_owned()).filter(|text| !text.is_empty())
        };
        let email = text("email");
        // Some issuers write it as a text.
        let verified = match claims.get("email_verified") {
            Some(Json::Bool(verified)) => Some(*verified),
            Some(Json::String(verified)) => Some(verified == "true"),
            Some(Json::Null) | None => None,
            Some(_) => Some(false),
        };
        Some(Self {
            // Providers of OAuth number their users; Amazon says `user_id` alone.
            subject: text("sub").or_else(|| id_claim(claims)).or_else(|| text("user_id"))?,
            email_verified: verified.filter(|_| email.is_some()),
            email,
            name: text("name").or_else(|| text("preferred_username")).or_else(|| text("login")),
            username: text("preferred_username").or_else(|| text("login")),
            groups: groups_claim(claims.get("groups")),
        })
    }

    /// What is known when the issuer has been asked more: what it says there counts, with the address and
    /// whether it is verified from one place; none when it speaks of somebody else.
    pub fn merged_with(&self, more: Self) -> Option<Self> {
        if more.subject != self.subject {
            return None;
        }
        let mut all = self.clone();
        if more.email.is_some() {
            (all.email, all.email_verified) = (more.email, more.email_verified);
        }
        all.name = more.name.or(all.name);
        all.username = more.username.or(all.username);
        all.groups = more.groups.or(all.groups);
        Some(all)
    }

    /// The address, if the issuer has verified it.
    pub fn verified_email(&self) -> Option<&str> {
        self.email.as_deref().filter(|_| self.email_verified == Some(true))
    }
}

fn id_claim(claims: &Json) -> Option<String> {
    match claims.get("id")? {
        Json::Number(number) => Some(number.to_string()),
        Json::String(id) => Some(id.clone()).filter(|id| !id.is_empty()),
        _ => None,
    }
}

fn groups_claim(claim: Option<&Json>) -> Option<Vec<String>> {
    let groups = match claim? {
        Json::Array(groups) => {
            groups.iter().filter_map(Json::as_str).take(MAX_GROUPS).map(str::to_owned).collect()
        }
        Json::String(group) => vec![group.clone()],
        _ => Vec::new(),
    };
    Some(groups)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_keeps_its_own_verification() {
        let token = json!({"sub": "1", "email": "a@x", "email_verified": true, "groups": ["g"]});
        let token = Identity::from_claims(&token).unwrap();
        let more =
            |claims: Json| token.merged_with(Identity::from_claims(&claims).unwrap()).unwrap();

        assert_eq!(more(json!({"sub": "1", "email": "b@x"})).verified_email(), None);
        assert_eq!(
            more(json!({"sub": "1", "email_verified": false})).verified_email(),
            Some("a@x")
        );
        assert_eq!(more(json!({"sub": "1"})).groups.unwrap(), ["g"], "only in the token");
        assert_eq!(more(json!({"sub": "1", "groups": ["h"]})).groups.unwrap(), ["h"]);
        let none: [&str; 0] = [];
        assert_eq!(more(json!({"sub": "1", "groups": []})).groups.unwrap(), none, "taken away");
        assert_eq!(token.merged_with(Identity::from_claims(&json!({"sub": "2"})).unwrap()), None);
    }

    #[test]
    fn a_subject_has_the_name_that_most_providers_have_for_it() {
        for (claims, subject) in [
            (json!({"sub": "1", "id": 2, "user_id": "3"}), "1"),
            (json!({"id": 2, "user_id": "3"}), "2"),
            (json!({"id": "", "user_id": "3"}), "3"),
            (json!({"user_id": "amzn1.account.3"}), "amzn1.account.3"),
        ] {
            assert_eq!(Identity::from_claims(&claims).unwrap().subject, subject, "{claims}");
        }
    }

    #[test]
    fn only_what_says_so_is_verified() {
        for (claim, verified) in [
            (json!(true), true),
            (json!("true"), true),
            (json!("false"), false),
            (json!(1), false),
            (json!(null), false),
        ] {
            let claims = json!({"sub": "1", "email": "a@x", "email_verified": claim});
            assert_eq!(
                Identity::from_claims(&claims).unwrap().verified_email().is_some(),
                verified
            );
        }
        assert_eq!(Identity::from_claims(&json!({"email": "a@x"})), None, "without a subject");
    }
}
