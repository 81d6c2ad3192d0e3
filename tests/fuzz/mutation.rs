//! Mutations of the inputs of a corpus.

use super::random::Random;

/// What changes more in one step than a random byte does.
const TOKENS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"\"",
    b"\\",
    b"0",
    b"-1",
    b"ffffffffffffffff",
    b"9223372036854775808",
    b"1e400",
    b"\xff",
    b"\xc3\xa9",
    b"%2F",
    b"%00",
    b"..",
    b"//",
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b"&&",
    b"null",
    b"true",
    b"chunked",
    b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
];

/// The longest input that a mutation makes longer, in bytes.
const MAX_INPUT_BYTES: usize = 64 << 10;

/// An input of the corpus after a few changes.
pub fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        change(&mut input, corpus, random);
    }
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = (at + 1 + random.below(16)).min(input.len());
    let other = &corpus[random.below(corpus.len())];
    let inserted = match random.below(8) {
        0 => return input.truncate(at),
        1 => return drop(input.drain(at..end)),
        2 => {
            return input
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << random.below(8));
        }
        3 => vec![random.below(256) as u8],
        4 => input[at..end].repeat(1 + random.below(4)),
        5 => other[random.below(other.len() + 1)..].to_vec(),
        _ => TOKENS[random.below(TOKENS.len())].to_vec(),
    };
    if input.len() + inserted.len() <= MAX_INPUT_BYTES {
        let replaced = if random.below(2) == 0 { at } else { end };
        input.splice(at..replaced.max(at), inserted);
    }
}
