//! Logins of visitors, with OAuth and with OpenID Connect.

use serde::Deserialize;
use serde_json::Value;

use ginnel_base::address::with_ascii_host;

use super::modules::non_empty;
use super::{FieldProblems, TunnelModule, read_wire, write_wire};
use crate::local::tunnels::{TunnelOauth, TunnelOidc};
use crate::{Base64, Secret, mask};

impl TunnelModule for TunnelOauth {
    type Definition = Self;

    fn read(given: Self, problems: &mut FieldProblems<'_>) -> Option<Self> {
        if given.provider.as_deref().unwrap_or_default().is_empty() {
            problems.report_in("provider", "is required");
        }
        Some(given.without_empty())
    }

    fn to_wire(&self) -> Value {
        write_wire(self)
    }

    fn of_wire(value: Value) -> Result<Option<Self>, String> {
        refuse_others("oauth", "issuer_url", &value)?;
        read_wire(value).map(|read: Self| Some(read.without_empty()))
    }
}

impl TunnelOauth {
    fn without_empty(self) -> Self {
        Self {
            provider: non_empty(self.provider),
            client_id: non_empty(self.client_id),
            client_secret: self.client_secret.filter(is_given),
            allow_emails: non_empty(self.allow_emails),
            allow_domains: non_empty(self.allow_domains),
            scopes: non_empty(self.scopes),
        }
    }
}

impl TunnelModule for TunnelOidc {
    type Definition = Self;

    fn read(given: Self, problems: &mut FieldProblems<'_>) -> Option<Self> {
        for (field, value) in [("issuer_url", &given.issuer_url), ("client_id", &given.client_id)] {
            if value.as_deref().unwrap_or_default().is_empty() {
                problems.report_in(field, "is required");
            }
        }
        let issuer_url = given.issuer_url.clone().map(|url| match with_ascii_host(&url) {
            Ok(ascii) => ascii.into_owned(),
            Err(problem) => {
                let shown = mask::url(&url);
                problems.report_in("issuer_url", &format!("{shown:?} {problem}"));
                url
            }
        });
        Some(Self { issuer_url, ..given }.without_empty())
    }

    fn to_wire(&self) -> Value {
        write_wire(self)
    }

    fn of_wire(value: Value) -> Result<Option<Self>, String> {
        refuse_others("oidc", "provider", &value)?;
        read_wire(value).map(|read: Self| Some(read.without_empty()))
    }
}

impl TunnelOidc {
    fn without_empty(self) -> Self {
        Self {
            issuer_url: non_empty(self.issuer_url),
            client_id: non_empty(self.client_id),
            client_secret: self.client_secret.filter(is_given),
            allow_emails: non_empty(self.allow_emails),
            allow_domains: non_empty(self.allow_domains),
            scopes: non_empty(self.scopes),
        }
    }
}

/// Members of a login that make it one of another kind, or one for another service.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ForeignMembers {
    sealed_client_secret: Base64,
    issuer_url: String,
    provider: String,
}

/// Refuses a secret that this service cannot read, and the member that names the place of the other kind of login.
fn refuse_others(kind: &str, other: &str, value: &Value) -> Result<(), String> {
    let members: ForeignMembers = read_wire(value.clone())?;
    if !members.sealed_client_secret.0.is_empty() {
        return Err(format!(
            "{kind}.sealed_client_secret: is encrypted for another service, which alone can read it: \
             give client_secret"
        ));
    }
    let place = if other == "provider" { members.provider } else { members.issuer_url };
    match place.is_empty() {
        true => Ok(()),
        false => Err(format!("{kind}.{other}: does not belong to this kind of login")),
    }
}

fn is_given(secret: &Secret) -> bool {
    !secret.0.is_empty()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_login_names_its_place_in_its_own_words() {
        let google = json!({"provider": "google", "issuer_url": ""});
        let issuer = json!({"provider": "google", "issuer_url": "https://a.test"});
        let sealed = json!({"provider": "google", "sealed_client_secret": "c2VhbGVk"});

        let oauth = TunnelOauth::of_wire(google).unwrap().unwrap();
        assert_eq!(oauth.provider.as_deref(), Some("google"));
        let refused = |problem: String, expected: &str| {
            assert!(problem.starts_with(expected), "{problem}");
        };
        refused(
            TunnelOauth::of_wire(issuer.clone()).unwrap_err(),
            "oauth.issuer_url: does not belong",
        );
        refused(TunnelOidc::of_wire(issuer).unwrap_err(), "oidc.provider: does not belong");
        refused(
            TunnelOauth::of_wire(sealed).unwrap_err(),
            "oauth.sealed_client_secret: is encrypted",
        );
    }
}
