//! The first samples, to look at.

use brimful::preview::{
    MAX_DOCUMENTS, MAX_SAMPLES, Picture, Preview, PreviewField, PreviewValue, short_number,
};
use serde::Serialize;

use crate::html::base64;
use crate::html::report::markup::as_markup;
use crate::html::report::shown::Shown;

const MAX_FIELDS: usize = 32;
/// Of all pictures, as PNG files: in base64 they take a third more, and a page stays below half a megabyte.
const MAX_PICTURE_BYTES: usize = 300_000;

/// The view.
#[derive(Debug, Serialize)]
pub(super) struct FirstSamples {
    about: &'static str,
    samples: Vec<SampleView>,
    has_pictures: bool,
    fields: Vec<FieldRow>,
}

#[derive(Debug, Serialize)]
struct SampleView {
    number: usize,
    pictures: Vec<PictureView>,
    blocks: Vec<BlockView>,
    numbers: Vec<NumbersView>,
}

#[derive(Debug, Serialize)]
struct PictureView {
    /// In base64.
    #[serde(serialize_with = "as_markup")]
    png: String,
    width: u32,
    height: u32,
    described: Shown,
    range: Option<Shown>,
}

#[derive(Debug, Serialize)]
struct BlockView {
    texts: Vec<Shown>,
    n_left_out: usize,
}

#[derive(Debug, Serialize)]
struct NumbersView {
    field: Shown,
    text: Shown,
}

#[derive(Debug, Serialize)]
struct FieldRow {
    name: Shown,
    dtype: Shown,
    shape: Shown,
}

impl FirstSamples {
    pub(super) fn of(preview: &Preview, is_tried: bool) -> FirstSamples {
        let mut view = FirstSamples {
            about: if is_tried {
                "From a trial of the first task. The dataset will mix samples of all tasks."
            } else {
                "As a loader without `shuffle` reads them, from the first shard."
            },
            samples: Vec::new(),
            has_pictures: false,
            fields: preview.fields.iter().take(MAX_FIELDS).map(row).collect(),
        };
        let mut room = MAX_PICTURE_BYTES;
        for (number, values) in preview.samples.iter().take(MAX_SAMPLES).enumerate() {
            let pictures = values.iter().map(|value| match value {
                PreviewValue::Picture(picture) => picture.png.len(),
                _ => 0,
            });
            match room.checked_sub(pictures.sum()) {
                Some(left) => room = left,
                None => break,
            }
            let mut sample = SampleView {
                number,
                pictures: Vec::new(),
                blocks: Vec::new(),
                numbers: Vec::new(),
            };
            for (field, value) in preview.fields.iter().zip(values).take(MAX_FIELDS) {
                match value {
                    PreviewValue::Picture(picture) => {
                        view.has_pictures = true;
                        sample.pictures.push(picture_view(field, number, picture));
                    }
                    PreviewValue::Documents { texts, n_left_out } => {
                        let texts = texts.iter().take(MAX_DOCUMENTS);
                        sample.blocks.push(BlockView {
                            texts: texts.map(|text| Shown::lines(text)).collect(),
                            n_left_out: *n_left_out,
                        });
                    }
                    PreviewValue::Numbers(text) => sample.numbers.push(NumbersView {
                        field: Shown::of(&field.name),
                        text: Shown::of(text),
                    }),
                }
            }
            view.samples.push(sample);
        }
        view
    }
}

fn picture_view(field: &PreviewField, number: usize, picture: &Picture) -> PictureView {
    PictureView {
        png: base64::encode(&picture.png),
        width: picture.width,
        height: picture.height,
        described: Shown::of(&format!("{} of sample {number}", field.name)),
        range: picture.range.map(|(low, high)| {
            let (low, high) = (short_number(low), short_number(high));
            Shown::of(&format!("{}: black {low}, white {high}", field.name))
        }),
    }
}

fn row(field: &PreviewField) -> FieldRow {
    let dimensions: Vec<String> = field.shape.iter().map(usize::to_string).collect();
    FieldRow {
        name: Shown::of(&field.name),
        dtype: Shown::of(&field.dtype),
        shape: Shown::of(&if dimensions.is_empty() {
            "scalar".to_owned()
        } else {
            dimensions.join(" × ")
        }),
    }
}
