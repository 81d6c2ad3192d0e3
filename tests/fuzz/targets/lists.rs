//! Fields of heads whose values are lists.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use ginnel_http1::{
    ConnectionOptions, ForwardedElement, cookie_pairs, cookie_text, elements_of,
    forwarded_elements, has_token, is_proper_upgrade, list_elements, may_be_named, proper_upgrades,
    strip_hop_by_hop,
};

/// A list is the same in one line and in several, and no part of it is another protocol or cookie than the
/// bytes say.
pub fn target(data: &[u8]) {
    assert_cookies(data);
    assert_forwarded(data);
    assert_connection(data);
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(line) = HeaderValue::from_bytes(line) else { return };
        headers.append(header::UPGRADE, line);
    }
    let whole: Vec<u8> =
        data.iter().map(|byte| if *byte == b'\n' { b',' } else { *byte }).collect();
    assert!(elements_of(&headers, header::UPGRADE).eq(list_elements(&whole)));
    let upgrades: Vec<&[u8]> = proper_upgrades(&headers).collect();
    for upgrade in &upgrades {
        assert!(is_proper_upgrade(upgrade) && !upgrade.contains(&b',') && !upgrade.contains(&b' '));
        assert!(!upgrade.to_ascii_lowercase().starts_with(b"h2"));
    }
    let joined = upgrades.join(&b", "[..]);
    assert!(list_elements(&joined).eq(upgrades.iter().copied()) || upgrades.is_empty());
    assert_eq!(upgrades.iter().any(|it| it.eq_ignore_ascii_case(b"websocket")), {
        has_token(&headers, header::UPGRADE, "websocket")
    });
}

/// One line of `Connection` or several make no difference, and no field that it names goes on.
fn assert_connection(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n').map(HeaderValue::from_bytes);
    let Ok(lines) = lines.collect::<Result<Vec<_>, _>>() else { return };
    let mut headers: HeaderMap = lines.into_iter().map(|line| (header::CONNECTION, line)).collect();
    let line: Vec<_> = headers.get_all(header::CONNECTION).iter().map(|it| it.as_bytes()).collect();
    let mut joined = ConnectionOptions::default();
    joined.read_value(&line.join(&b","[..]));
    assert_eq!(ConnectionOptions::from_headers(&headers), joined);
    let named: Vec<_> = elements_of(&headers, header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .collect();
    for name in named.iter().filter(|name| **name != header::CONNECTION) {
        headers.insert(name, HeaderValue::from_static("1"));
    }
    strip_hop_by_hop(&mut headers);
    let goes_on = |name: &HeaderName| headers.contains_key(name);
    assert!(named.iter().all(|name| goes_on(name) != may_be_named(name.as_str().as_bytes())));
}

/// An element of `Forwarded` is read again as it was written, and one line or several make no difference.
fn assert_forwarded(data: &[u8]) {
    let Ok(line) = HeaderValue::from_bytes(data) else { return };
    let one = HeaderMap::from_iter([(header::FORWARDED, line)]);
    let Some(elements) = forwarded_elements(&one) else { return };
    let lines = elements.iter().map(ToString::to_string).filter(|line| !line.is_empty());
    let mut again = HeaderMap::new();
    for line in lines {
        assert!(ForwardedElement::parse(line.as_bytes()).is_some(), "{line}");
        let Ok(line) = HeaderValue::try_from(line) else { return };
        again.append(header::FORWARDED, line);
    }
    let known = elements.into_iter().filter(|it| *it != ForwardedElement::default());
    assert_eq!(forwarded_elements(&again).unwrap_or_default(), known.collect::<Vec<_>>());
}

fn assert_cookies(line: &[u8]) {
    for (name, value) in cookie_pairs(line) {
        assert!(!name.contains(&b'=') && !name.contains(&b';') && !value.contains(&b';'));
        let text = cookie_text(value);
        let latin = || text.chars().map(|it| u8::try_from(u32::from(it)).unwrap_or_default());
        assert!(text.as_bytes() == value || latin().eq(value.iter().copied()));
    }
    let pairs = line.split(|byte| *byte == b';').filter(|pair| pair.contains(&b'='));
    assert_eq!(cookie_pairs(line).count(), pairs.count());
}
