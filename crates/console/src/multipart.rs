//! A streaming `multipart/form-data` parser. A file is never held in memory completely.

use axum::{
    body::{Body, BodyDataStream},
    http::{HeaderMap, header},
};
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;

use crate::problem::{PageError, PageResult};

/// The parts of a form, read in order.
#[derive(Debug)]
pub(crate) struct Multipart {
    body: BodyDataStream,
    /// The delimiter after a part.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    within: bool,
}

/// The headers of a part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartHeaders {
    pub(crate) name: String,
    pub(crate) filename: Option<String>,
    pub(crate) media_type: Option<String>,
}

/// Maximum size of a part's headers.
const MAX_HEAD: usize = 8 * 1024;

// === impl Multipart ===

impl Multipart {
    /// `None` for other content types.
    pub(crate) fn of(headers: &HeaderMap, body: Body) -> std::result::Result<Self, Body> {
        let Some(boundary) = boundary(headers) else { return Err(body) };
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first delimiter has no preceding line break.
        Ok(Self { body: body.into_data_stream(), delimiter, buffer: BytesMut::from(&b"\r\n"[..]), within: true })
    }

    /// Skips the rest of the current part and returns the next one.
    pub(crate) async fn next(&mut self) -> PageResult<Option<PartHeaders>> {
        while self.within {
            self.chunk().await?;
        }
        while self.buffer.len() < 2 {
            self.fill().await?;
        }
        if self.buffer.starts_with(b"--") {
            return Ok(None);
        }
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = PartHeaders::read(&String::from_utf8_lossy(&self.buffer[..end]));
                self.buffer.advance(end + 4);
                self.within = true;
                return Ok(Some(head));
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(PageError::Form);
            }
            self.fill().await?;
        }
    }

    /// The next chunk of the part, or `None` at its end.
    pub(crate) async fn chunk(&mut self) -> PageResult<Option<Bytes>> {
        while self.within {
            match find(&self.buffer, &self.delimiter) {
                Some(0) => {
                    self.buffer.advance(self.delimiter.len());
                    self.within = false;
                }
                Some(end) => return Ok(Some(self.buffer.split_to(end).freeze())),
                // The chunk may end with the start of a delimiter.
                None if self.buffer.len() > self.delimiter.len() => {
                    let sure = self.buffer.len() - self.delimiter.len();
                    return Ok(Some(self.buffer.split_to(sure).freeze()));
                }
                None => self.fill().await?,
            }
        }
        Ok(None)
    }

    /// Reads the part as text, up to a maximum length.
    pub(crate) async fn text(&mut self, most: usize) -> PageResult<String> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > most {
                return Err(PageError::Form);
            }
        }
        String::from_utf8(bytes).map_err(|_| PageError::Form)
    }

    /// A form that ends early is invalid.
    async fn fill(&mut self) -> PageResult<()> {
        match self.body.next().await {
            Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
            Some(Err(_)) | None => return Err(PageError::Form),
        }
        Ok(())
    }
}

// === impl PartHeaders ===

impl PartHeaders {
    fn read(head: &str) -> Self {
        let mut read = Self::default();
        for line in head.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            if name.eq_ignore_ascii_case("content-type") {
                read.media_type = Some(value.trim().to_owned());
            } else if name.eq_ignore_ascii_case("content-disposition") {
                read.name = quoted(value, "name").unwrap_or_default();
                read.filename = quoted(value, "filename");
            }
        }
        read
    }
}

/// A parameter such as `name="text"`. Browsers encode quotes as `%22`.
fn quoted(value: &str, member: &str) -> Option<String> {
    let wanted = format!("{member}=\"");
    let rest = value.split("; ").find_map(|one| one.trim().strip_prefix(&wanted))?;
    Some(rest.split('"').next().unwrap_or_default().replace("%22", "\"").replace("%0D%0A", " "))
}

fn boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let rest = kind.strip_prefix("multipart/form-data")?;
    let boundary = rest.split(';').find_map(|one| one.trim().strip_prefix("boundary="))?.trim_matches('"');
    (1..=70).contains(&boundary.len()).then(|| boundary.to_owned())
}

fn find(within: &[u8], wanted: &[u8]) -> Option<usize> {
    within.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn form(text: &str, pieces: usize) -> Multipart {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "multipart/form-data; boundary=XX".parse().unwrap());
        let pieces: Vec<_> =
            text.as_bytes().chunks(pieces).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
        Multipart::of(&headers, Body::from_stream(stream::iter(pieces))).unwrap()
    }

    #[tokio::test]
    async fn parts_are_complete_however_the_input_is_split() {
        let text = "--XX\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nline\r\n--X\r\n--XX\r\n\
                    Content-Disposition: form-data; name=\"file\"; filename=\"a b.png\"\r\nContent-Type: image/png\r\n\r\n\
                    \r\n-\r\n--XX--\r\n";
        for pieces in [1, 2, 3, 7, 1000] {
            let mut form = form(text, pieces);
            assert_eq!(form.next().await.unwrap().unwrap().name, "text");
            assert_eq!(form.text(100).await.unwrap(), "line\r\n--X");
            let head = form.next().await.unwrap().unwrap();
            let (filename, media_type) = (Some("a b.png".to_owned()), Some("image/png".to_owned()));
            assert_eq!(head, PartHeaders { name: "file".to_owned(), filename, media_type });
            assert_eq!(form.text(100).await.unwrap(), "\r\n-");
            assert_eq!(form.next().await.unwrap(), None);
        }
        // Unread content is skipped, and a truncated form is invalid.
        let mut skipped = form(text, 5);
        skipped.next().await.unwrap();
        assert_eq!(skipped.next().await.unwrap().unwrap().name, "file");
        let mut broken = form(&text[..text.len() - 8], 5);
        broken.next().await.unwrap();
        broken.next().await.unwrap();
        assert!(broken.text(100).await.is_err());
    }
}
