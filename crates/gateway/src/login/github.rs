//! What GitHub says of somebody beside the usual: which of their addresses are verified, and what they belong
//! to.

use serde::Deserialize;

use ginnel_policy::login::{ADDRESS_SCOPES, GROUP_SCOPES, Identity};

use crate::login::issuer::LoginResult;
use crate::login::tokens::TokenClient;

/// How many organizations and how many teams are asked for: as many as there are on a page.
const PAGE_SIZE: &str = "per_page=100";

#[derive(Deserialize)]
struct Address {
    email: String,
    primary: bool,
    verified: bool,
}

#[derive(Deserialize)]
struct Organization {
    login: String,
}

#[derive(Deserialize)]
struct Team {
    slug: String,
    organization: Organization,
}

/// Adds what the scopes let the bearer of a token ask for; `url` is where the user is. Organizations are
/// groups by their names, and teams with that of their organization, all in small letters.
pub(super) async fn complete_identity(
    client: &TokenClient<'_>,
    url: &str,
    token: &str,
    scopes: &[String],
    identity: Identity,
) -> LoginResult<Identity> {
    let has = |names: &[&str]| scopes.iter().any(|scope| names.contains(&scope.as_str()));
    let of_user = |what: &str| resource_url(url, what);
    let mut identity = identity;
    if has(&ADDRESS_SCOPES) {
        let addresses: Vec<Address> = client.fetch_json(&of_user("emails"), token).await?;
        // What a profile shows may be none of those that are verified.
        let primary = addresses.into_iter().find(|address| address.primary);
        (identity.email, identity.email_verified) = match primary {
            Some(address) => (Some(address.email), Some(address.verified)),
            None => (None, None),
        };
    }
    if has(&GROUP_SCOPES) {
        let organizations: Vec<Organization> = client.fetch_json(&of_user("orgs"), token).await?;
        let teams: Vec<Team> = client.fetch_json(&of_user("teams"), token).await?;
        let teams = teams.into_iter().map(|it| format!("{}/{}", it.organization.login, it.slug));
        let groups = organizations.into_iter().map(|it| it.login).chain(teams);
        identity.groups = Some(groups.map(|group| group.to_lowercase()).collect());
    }
    Ok(identity)
}

/// Where something of a user is: below the user's own path, whatever query that has.
fn resource_url(url: &str, what: &str) -> String {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let path = path.trim_end_matches('/');
    let separator = if query.is_empty() { "" } else { "&" };
    format!("{path}/{what}?{query}{separator}{PAGE_SIZE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_user_is_below_their_path() {
        for (user, emails) in [
            ("https://a.test/user", "https://a.test/user/emails?per_page=100"),
            ("https://a.test/user/", "https://a.test/user/emails?per_page=100"),
            ("https://a.test/user?v=3", "https://a.test/user/emails?v=3&per_page=100"),
        ] {
            assert_eq!(resource_url(user, "emails"), emails);
        }
    }
}
