//! Which part of a container's log is asked for.

/// The parameters of a log request that the stand-in understands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogQuery {
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
    /// The log of the container's last start is asked for.
    pub previous: bool,
    /// What comes later is asked for too.
    pub follow: bool,
}

impl LogQuery {
    /// Reads a URL's query.
    pub fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "tailLines" => parsed.tail_lines = value.parse().ok(),
                "limitBytes" => parsed.limit_bytes = value.parse().ok(),
                "follow" => parsed.follow = value == "true",
                "previous" => parsed.previous = value == "true",
                _ => {}
            }
        }
        parsed
    }

    /// The part of `log` that is asked for.
    pub fn select(&self, log: &[u8]) -> Vec<u8> {
        let tail = match self.tail_lines {
            None => log,
            Some(0) => &[],
            Some(lines) => {
                let body = log.strip_suffix(b"\n").unwrap_or(log);
                let start = body
                    .iter()
                    .enumerate()
                    .rev()
                    .filter(|(_, byte)| **byte == b'\n')
                    .nth(lines - 1)
                    .map_or(0, |(index, _)| index + 1);
                log.get(start..).unwrap_or_default()
            }
        };
        let limit = self.limit_bytes.unwrap_or(tail.len()).min(tail.len());
        tail.get(..limit).unwrap_or_default().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::LogQuery;

    fn select(query: &str, log: &str) -> String {
        String::from_utf8(LogQuery::parse(query).select(log.as_bytes())).unwrap()
    }

    #[test]
    fn the_last_lines_are_counted_from_the_end() {
        let log = "one\ntwo\nthree\n";
        assert_eq!(select("", log), log);
        assert_eq!(select("tailLines=2", log), "two\nthree\n");
        assert_eq!(select("tailLines=9", log), log);
        assert_eq!(select("tailLines=0", log), "");
        assert_eq!(select("tailLines=1", "no end"), "no end");
    }

    #[test]
    fn the_limit_cuts_what_is_left() {
        assert_eq!(select("tailLines=1&limitBytes=2", "one\ntwo\n"), "tw");
    }

    #[test]
    fn the_previous_log_can_be_asked_for() {
        assert!(LogQuery::parse("previous=true&tailLines=1").previous);
    }
}
