//! PEM blocks in and out.

use base64::{Engine, engine::general_purpose::STANDARD};
use x509_parser::pem::Pem;
use zeroize::Zeroizing;

use crate::Error;

/// One decoded block: its label and its bytes, which are wiped when dropped.
pub(crate) struct Block {
    pub(crate) label: String,
    pub(crate) der: Zeroizing<Vec<u8>>,
}

/// Exactly one block with one of the `labels`; EC keys may be preceded by a block
/// `EC PARAMETERS`, as OpenSSL writes it, which says nothing that the key does not say itself.
pub(crate) fn single(
    text: &str,
    item: &'static str,
    labels: &'static [&'static str],
) -> Result<Block, Error> {
    let not_pem = || Error::NotPem {
        item,
        expected: labels.first().copied().unwrap_or_default(),
    };
    let mut blocks = Vec::new();
    for block in Pem::iter_from_buffer(text.as_bytes()) {
        let block = block.map_err(|_| not_pem())?;
        if block.label != "EC PARAMETERS" {
            blocks.push(Block {
                label: block.label,
                der: Zeroizing::new(block.contents),
            });
        }
    }
    let found = blocks.len();
    match blocks.pop() {
        Some(_) if found > 1 => Err(Error::SeveralBlocks { item, found }),
        Some(block) if labels.contains(&block.label.as_str()) => Ok(block),
        Some(_) | None => Err(not_pem()),
    }
}

/// A block with lines of 64 characters, as RFC 7468 wants them.
pub(crate) fn encode(label: &str, der: &[u8]) -> Zeroizing<String> {
    let body = Zeroizing::new(STANDARD.encode(der));
    let mut text = Zeroizing::new(String::with_capacity(body.len() + body.len() / 64 + 64));
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    for (index, character) in body.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            text.push('\n');
        }
        text.push(character);
    }
    text.push_str("\n-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}
