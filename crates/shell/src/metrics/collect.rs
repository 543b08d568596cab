//! Gauges that are read when somebody scrapes.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

type Labels = Vec<(&'static str, String)>;

/// The gauges of one name.
#[derive(Debug)]
struct Gauges {
    help: &'static str,
    values: Vec<(Labels, f64)>,
}

/// Takes in the gauges of one scrape.
#[derive(Debug)]
pub struct Sink<'a> {
    prefix: &'a str,
    families: BTreeMap<&'static str, Gauges>,
}

impl Sink<'_> {
    /// Says the value of one gauge. Names get the prefix; the help of a name's first gauge counts.
    ///
    /// Label values may be names of objects here, since what is gone is not said any more. How
    /// many there are is for the caller to bound.
    pub fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        value: f64,
    ) {
        let labels = labels
            .iter()
            .map(|&(key, value)| (key, value.to_owned()))
            .collect();
        let gauges = self.families.entry(name).or_insert(Gauges {
            help,
            values: Vec::new(),
        });
        gauges.values.push((labels, value));
    }

    fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, Gauges { help, values }) in self.families {
            let name = format!("{}_{name}", self.prefix);
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (labels, value) in values {
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Asks the caller at each scrape.
pub(super) struct Hook {
    prefix: &'static str,
    read: Box<dyn Fn(&mut Sink<'_>) + Send + Sync>,
}

impl Hook {
    pub(super) fn new(
        prefix: &'static str,
        read: impl Fn(&mut Sink<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            prefix,
            read: Box::new(read),
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Collector for Hook {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut sink = Sink {
            prefix: self.prefix,
            families: BTreeMap::new(),
        };
        (self.read)(&mut sink);
        sink.encode(&mut encoder)
    }
}
