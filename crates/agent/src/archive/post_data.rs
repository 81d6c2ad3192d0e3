//! Bodies of requests, as programs write them into archives: as text, as base64, or as the fields of a form.

use serde_json::Value;

use ginnel_content::multipart::{FormField, write_form};
use ginnel_http1::{media_type_in, media_type_parameters};

use super::{decode_base64, decode_text, find_value, is_token, replace_controls, text_member};

/// A body, and the value of `Content-Type` that describes it.
#[derive(Debug, Default)]
pub(super) struct PostedBody {
    pub bytes: Vec<u8>,
    /// `None` if the header is right.
    pub content_type: Option<String>,
    pub is_base64: bool,
    /// If true, the body is written anew, so that its size in the archive is that of another one.
    pub is_rebuilt: bool,
}

impl PostedBody {
    /// Reads `postData`.
    ///
    /// # Errors
    /// If the text is not base64 although the archive names it so.
    pub fn read(data: &Value, headers: &[(String, String)]) -> Result<Self, String> {
        let header = find_value(headers, "content-type");
        let written = replace_controls(text_member(data, "mimeType")).trim().to_owned();
        let content_type = header.unwrap_or(&written).to_owned();
        let Some(text) = data["text"].as_str().filter(|text| !text.is_empty()) else {
            let params = data["params"].as_array().map_or(&[][..], Vec::as_slice);
            let form = Self::from_params(params, &content_type, &written);
            let form = Self { is_rebuilt: true, ..form };
            // Without the header, a service does not know that the body is a form.
            return Ok(match header {
                None => Self { content_type: form.content_type.or(Some(content_type)), ..form },
                Some(_) => form,
            });
        };
        // Browsers have no field for the encoding, and this agent writes it into the comment.
        let is_base64 = [text_member(data, "encoding"), text_member(data, "comment")]
            .iter()
            .any(|name| name.eq_ignore_ascii_case("base64"));
        let bytes = match is_base64 {
            true => decode_base64(text).ok_or("request.postData.text: is no base64")?,
            false => decode_text(text, &content_type),
        };
        Ok(Self { bytes, is_base64, ..Self::default() })
    }

    /// Writes the fields of a form in the format of its media type.
    fn from_params(params: &[Value], content_type: &str, written: &str) -> Self {
        if params.is_empty() {
            return Self::default();
        }
        let media_type = media_type_in(content_type).to_ascii_lowercase();
        match media_type.as_str() {
            "text/plain" => {
                Self { bytes: params.iter().flat_map(plain_line).collect(), ..Self::default() }
            }
            it if it.starts_with("multipart/") => Self::from_parts(params, content_type, written),
            _ => {
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                for param in params {
                    form.append_pair(text_member(param, "name"), text_member(param, "value"));
                }
                let urlencoded = "application/x-www-form-urlencoded";
                let is_named = media_type == urlencoded;
                let content_type = (!is_named).then(|| urlencoded.to_owned());
                Self { bytes: form.finish().into_bytes(), content_type, ..Self::default() }
            }
        }
    }

    /// Writes a form in parts, with the boundary that the header names.
    fn from_parts(params: &[Value], content_type: &str, written: &str) -> Self {
        let fields: Vec<_> = params.iter().map(form_field).collect();
        let named = [content_type, written].into_iter().find_map(boundary_in);
        let boundary = named.unwrap_or_else(|| free_boundary(&fields));
        let is_right = boundary_in(content_type).is_some();
        let content_type = (!is_right).then(|| {
            let media_type = media_type_in(content_type);
            format!("{media_type}; boundary={boundary}")
        });
        Self { bytes: write_form(&boundary, &fields), content_type, ..Self::default() }
    }
}

fn plain_line(param: &Value) -> Vec<u8> {
    format!("{}={}\r\n", text_member(param, "name"), text_member(param, "value")).into_bytes()
}

fn form_field(param: &Value) -> FormField<'_> {
    let text = |name: &str| param[name].as_str().filter(|text| !text.is_empty());
    FormField {
        name: text_member(param, "name"),
        file_name: text("fileName"),
        content_type: text("contentType"),
        content: text_member(param, "value").as_bytes(),
    }
}

fn boundary_in(content_type: &str) -> Option<String> {
    let parameters = media_type_parameters(content_type);
    let (_, boundary) = parameters.into_iter().find(|(name, _)| name == "boundary")?;
    let is_usable = !boundary.is_empty() && !boundary.contains(['\r', '\n']);
    is_usable.then(|| boundary.trim_end().to_owned())
}

/// Returns a boundary that no content has.
fn free_boundary(fields: &[FormField<'_>]) -> String {
    let has = |content: &[u8], mark: &str| {
        content.windows(mark.len()).any(|window| window == mark.as_bytes())
    };
    let mut boundary = "form-boundary".to_owned();
    while fields.iter().any(|field| has(field.content, &boundary)) {
        boundary.push('x');
    }
    boundary
}

/// Returns `Cookie` for archives that have the cookies of a request only in a list of their own.
pub(super) fn cookie_header(cookies: &Value) -> Option<String> {
    let cookies = cookies.as_array()?.iter();
    let named = cookies.filter(|cookie| is_token(text_member(cookie, "name")));
    let pairs: Vec<_> = named
        .map(|it| format!("{}={}", text_member(it, "name"), text_member(it, "value")))
        .collect();
    (!pairs.is_empty()).then(|| replace_controls(&pairs.join("; ")))
}
