//! cuDNN's older interface: tensor descriptors, batch normalisation, dropout, recurrent nets, `benchmark`
//! searches.
//!
//! NVIDIA documents what the sizes are for, not how large they are. Each formula below says what it counts,
//! and every use of one is noted in the report.

use std::ffi::{c_float, c_int, c_uint, c_void};

use crate::abi::{self, SUCCESS, boxed, drop_boxed, exports, put, put_boxed, put_handle};
use crate::machine;
use crate::report;

/// `cudnnDataType_t`: the bytes of one element.
fn element_bytes(kind: c_int) -> usize {
    match kind {
        1 | 10 => 8,          // double, int64
        2 | 9 => 2,           // half, bfloat16
        3 | 7 | 11..=13 => 1, // int8, uint8, boolean, the two eight-bit floats
        _ => 4,
    }
}

/// A tensor's or a filter's shape.
#[derive(Debug, Default)]
pub(crate) struct Tensor {
    kind: c_int,
    format: c_int,
    dims: Vec<c_int>,
    strides: Vec<c_int>,
}

impl Tensor {
    /// Whether channels are the innermost dimension, as the fused half-precision path wants them.
    fn channels_last(&self) -> bool {
        self.dims.len() > 2
            && self.strides.get(1) == Some(&1)
            && self.dims.get(1).is_some_and(|c| *c > 1)
    }

    fn channels(&self) -> usize {
        self.dims
            .get(1)
            .and_then(|c| usize::try_from(*c).ok())
            .unwrap_or(0)
    }

    fn elements(&self) -> usize {
        self.dims
            .iter()
            .map(|d| usize::try_from(*d).unwrap_or(0))
            .product()
    }
}

/// A recurrent net, as `cudnnSetRNNDescriptor_v8` describes it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recurrent {
    cell: c_int,
    bias: c_int,
    directions: usize,
    kind: c_int,
    input: usize,
    hidden: usize,
    projected: usize,
    layers: usize,
}

/// A batch of sequences.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    /// Steps of all sequences together.
    steps: usize,
    batch: usize,
}

const LSTM: c_int = 2;
const GRU: c_int = 3;

impl Recurrent {
    fn gates(&self) -> usize {
        match self.cell {
            LSTM => 4,
            GRU => 3,
            _ => 1,
        }
    }

    /// The width of what one direction of a layer gives on.
    fn output(&self) -> usize {
        if self.projected == 0 {
            self.hidden
        } else {
            self.projected
        }
    }

    fn has_projection(&self) -> bool {
        self.cell == LSTM && self.output() != self.hidden
    }

    fn width_into(&self, pseudo_layer: usize) -> usize {
        if pseudo_layer < self.directions {
            self.input
        } else {
            self.output() * self.directions
        }
    }

    /// Bias vectors per gate: none, one, or one each for input and recurrence.
    fn biases(&self) -> usize {
        match self.bias {
            0 => 0,
            2 => 2,
            _ => 1,
        }
    }

    /// Elements of all matrices of one pseudo-layer: input, recurrent, projection.
    fn matrices(&self, pseudo_layer: usize) -> usize {
        let projection = if self.has_projection() {
            self.output() * self.hidden
        } else {
            0
        };
        self.gates() * self.hidden * (self.width_into(pseudo_layer) + self.output()) + projection
    }

    fn pseudo_layers(&self) -> usize {
        self.layers * self.directions
    }

    fn all_matrices(&self) -> usize {
        (0..self.pseudo_layers())
            .map(|layer| self.matrices(layer))
            .sum()
    }

    fn weight_bytes(&self) -> usize {
        let biases = self.pseudo_layers() * self.biases() * self.gates() * self.hidden;
        (self.all_matrices() + biases) * element_bytes(self.kind)
    }

    /// Where a matrix begins and its rows and columns, in elements: all matrices first, then all biases.
    fn matrix(&self, pseudo_layer: usize, id: usize) -> Option<(usize, usize, usize)> {
        let start: usize = (0..pseudo_layer).map(|layer| self.matrices(layer)).sum();
        let (gates, into) = (self.gates(), self.width_into(pseudo_layer));
        if id < gates {
            Some((start + id * self.hidden * into, self.hidden, into))
        } else if id < 2 * gates {
            let first = start + gates * self.hidden * into;
            Some((
                first + (id - gates) * self.hidden * self.output(),
                self.hidden,
                self.output(),
            ))
        } else if id == 2 * gates && self.has_projection() {
            let first = start + gates * self.hidden * (into + self.output());
            Some((first, self.output(), self.hidden))
        } else {
            None
        }
    }

    fn bias_start(&self, pseudo_layer: usize, id: usize) -> Option<usize> {
        let vectors = self.biases() * self.gates();
        (id < vectors).then(|| self.all_matrices() + (pseudo_layer * vectors + id) * self.hidden)
    }

    /// What training keeps: each gate's value, the cell's state and the layer's output, for every step.
    fn reserve_bytes(&self, data: &Sequences) -> usize {
        let states = usize::from(self.cell == LSTM);
        let per_step =
            self.pseudo_layers() * (self.hidden * (self.gates() + states) + self.output());
        data.steps * per_step * element_bytes(self.kind)
    }

    /// What one layer works with: the product of input and weights for every step, and the running states.
    fn workspace_bytes(&self, data: &Sequences) -> usize {
        let products = data.steps * self.directions * self.gates() * self.hidden;
        let states = 2 * data.batch * self.pseudo_layers() * self.hidden;
        (products + states) * element_bytes(self.kind)
    }
}

fn set_tensor(
    tensor: *mut Tensor,
    kind: c_int,
    format: c_int,
    dims: Vec<c_int>,
    strides: Vec<c_int>,
) -> c_int {
    match boxed(tensor) {
        Some(tensor) => {
            *tensor = Tensor {
                kind,
                format,
                dims,
                strides,
            };
            SUCCESS
        }
        None => super::BAD_PARAM,
    }
}

fn show_dims(values: &[c_int], wanted: c_int, out: *mut c_int) {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    for (place, value) in values.iter().take(wanted).enumerate() {
        put(out.wrapping_add(place), *value);
    }
}

fn batch_norm_size(
    out: *mut usize,
    tensor: *mut Tensor,
    size: impl FnOnce(&Tensor) -> usize,
) -> c_int {
    let Some(tensor) = boxed(tensor) else {
        return super::BAD_PARAM;
    };
    report::guess(if tensor.channels_last() {
        "batchnorm-nhwc"
    } else {
        "batchnorm"
    });
    put(out, size(tensor));
    SUCCESS
}

/// The persistent kernel of channels-last tensors exchanges two sums per channel between blocks.
fn batch_norm_workspace(tensor: &Tensor) -> usize {
    if tensor.channels_last() {
        2 * tensor.channels() * size_of::<c_float>()
    } else {
        0
    }
}

/// One search result: `cudnnConvolution…AlgoPerf_t`, 48 bytes.
fn one_algorithm(wanted: c_int, found: *mut c_int, results: *mut c_void) -> c_int {
    if wanted < 1 || results.is_null() {
        put(found, 0);
        return SUCCESS;
    }
    report::guess("cudnn-legacy-convolution");
    abi::zero(results, 48);
    put(results.cast::<c_int>(), 1); // the second algorithm of each kind: implicit precomputed product, or alike
    put(results.wrapping_byte_add(8).cast::<c_float>(), 1.0); // time
    put(results.wrapping_byte_add(24).cast::<c_int>(), 1); // deterministic
    put(found, 1);
    SUCCESS
}

fn zero_workspace(out: *mut usize) -> c_int {
    report::guess("cudnn-legacy-convolution");
    put(out, 0);
    SUCCESS
}

exports! {
    fn cudnnCreateTensorDescriptor(out: *mut *mut Tensor) { put_boxed(out, Tensor::default()) }
    fn cudnnDestroyTensorDescriptor(tensor: *mut Tensor) { drop_boxed(tensor) }
    fn cudnnCreateFilterDescriptor(out: *mut *mut Tensor) { put_boxed(out, Tensor::default()) }
    fn cudnnDestroyFilterDescriptor(filter: *mut Tensor) { drop_boxed(filter) }
    fn cudnnSetTensorNdDescriptor(
        tensor: *mut Tensor, kind: c_int, count: c_int, dims: *const c_int, strides: *const c_int,
    ) {
        set_tensor(tensor, kind, 0, abi::list(dims, count), abi::list(strides, count))
    }
    fn cudnnSetFilterNdDescriptor(
        filter: *mut Tensor, kind: c_int, format: c_int, count: c_int, dims: *const c_int,
    ) {
        set_tensor(filter, kind, format, abi::list(dims, count), Vec::new())
    }
    fn cudnnGetTensorNdDescriptor(
        tensor: *mut Tensor, wanted: c_int, kind: *mut c_int, count: *mut c_int, dims: *mut c_int, strides: *mut c_int,
    ) {
        let Some(tensor) = boxed(tensor) else { return super::BAD_PARAM };
        put(kind, tensor.kind);
        put(count, c_int::try_from(tensor.dims.len()).unwrap_or(0));
        show_dims(&tensor.dims, wanted, dims);
        show_dims(&tensor.strides, wanted, strides);
        SUCCESS
    }
    fn cudnnGetFilterNdDescriptor(
        filter: *mut Tensor, wanted: c_int, kind: *mut c_int, format: *mut c_int, count: *mut c_int, dims: *mut c_int,
    ) {
        let Some(filter) = boxed(filter) else { return super::BAD_PARAM };
        put(kind, filter.kind);
        put(format, filter.format);
        put(count, c_int::try_from(filter.dims.len()).unwrap_or(0));
        show_dims(&filter.dims, wanted, dims);
        SUCCESS
    }
    fn cudnnCreateConvolutionDescriptor(out: *mut usize) { put_handle(out) }
    fn cudnnCreateActivationDescriptor(out: *mut usize) { put_handle(out) }
    fn cudnnCreatePoolingDescriptor(out: *mut usize) { put_handle(out) }
    fn cudnnCreateDropoutDescriptor(out: *mut usize) { put_handle(out) }
    fn cudnnCreateSpatialTransformerDescriptor(out: *mut usize) { put_handle(out) }
    fn cudnnCreateCTCLossDescriptor(out: *mut usize) { put_handle(out) }

    fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        _handle: usize, _mode: c_int, _ops: c_int, x: *mut Tensor, _z: usize, _y: usize, _scale: usize,
        _activation: usize, out: *mut usize,
    ) {
        batch_norm_size(out, x, batch_norm_workspace)
    }
    fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        _handle: usize, _mode: c_int, _ops: c_int, x: *mut Tensor, _y: usize, _dy: usize, _dz: usize, _dx: usize,
        _scale: usize, _activation: usize, out: *mut usize,
    ) {
        batch_norm_size(out, x, batch_norm_workspace)
    }
    // Plain normalisation keeps nothing; fused with an activation it keeps one bit per element, its mask.
    fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        _handle: usize, _mode: c_int, ops: c_int, _activation: usize, x: *mut Tensor, out: *mut usize,
    ) {
        batch_norm_size(out, x, |x| if ops == 0 { 0 } else { x.elements().div_ceil(8) })
    }

    // One XORWOW generator of 48 bytes for each thread the device can hold.
    fn cudnnDropoutGetStatesSize(_handle: usize, out: *mut usize) {
        report::guess("dropout-states");
        let threads = machine::current()
            .map_or(0, |device| device.spec.multiprocessors * device.limits.threads_per_multiprocessor);
        put(out, threads as usize * 48);
        SUCCESS
    }

    fn cudnnCreateRNNDescriptor(out: *mut *mut Recurrent) { put_boxed(out, Recurrent::default()) }
    fn cudnnDestroyRNNDescriptor(net: *mut Recurrent) { drop_boxed(net) }
    fn cudnnCreateRNNDataDescriptor(out: *mut *mut Sequences) { put_boxed(out, Sequences::default()) }
    fn cudnnDestroyRNNDataDescriptor(data: *mut Sequences) { drop_boxed(data) }
    fn cudnnSetRNNDescriptor_v8(
        net: *mut Recurrent, _algorithm: c_int, cell: c_int, bias: c_int, direction: c_int, _input_mode: c_int, kind: c_int,
        _precision: c_int, _math: c_int, input: c_int, hidden: c_int, projected: c_int, layers: c_int, _dropout: usize,
        _flags: c_uint,
    ) {
        let Some(net) = boxed(net) else { return super::BAD_PARAM };
        let size = |n: c_int| usize::try_from(n).unwrap_or(0);
        *net = Recurrent {
            cell,
            bias,
            directions: if direction == 1 { 2 } else { 1 },
            kind,
            input: size(input),
            hidden: size(hidden),
            projected: size(projected),
            layers: size(layers),
        };
        SUCCESS
    }
    fn cudnnSetRNNDataDescriptor(
        data: *mut Sequences, _kind: c_int, layout: c_int, longest: c_int, batch: c_int, _width: c_int,
        lengths: *const c_int, _fill: usize,
    ) {
        let Some(data) = boxed(data) else { return super::BAD_PARAM };
        let size = |n: c_int| usize::try_from(n).unwrap_or(0);
        let packed = layout == 1;
        let steps = if packed {
            abi::list(lengths, batch).into_iter().map(size).sum()
        } else {
            size(longest) * size(batch)
        };
        *data = Sequences { steps, batch: size(batch) };
        SUCCESS
    }
    fn cudnnGetRNNWeightSpaceSize(_handle: usize, net: *mut Recurrent, out: *mut usize) {
        let Some(net) = boxed(net) else { return super::BAD_PARAM };
        put(out, net.weight_bytes());
        SUCCESS
    }
    fn cudnnGetRNNTempSpaceSizes(
        _handle: usize, net: *mut Recurrent, mode: c_int, data: *mut Sequences, workspace: *mut usize, reserve: *mut usize,
    ) {
        let (Some(net), Some(data)) = (boxed(net), boxed(data)) else { return super::BAD_PARAM };
        report::guess("rnn");
        put(workspace, net.workspace_bytes(data));
        put(reserve, if mode == 1 { net.reserve_bytes(data) } else { 0 });
        SUCCESS
    }
    fn cudnnGetRNNWeightParams(
        _handle: usize, net: *mut Recurrent, pseudo_layer: c_int, _bytes: usize, base: u64, id: c_int, matrix: *mut Tensor,
        matrix_at: *mut u64, bias: *mut Tensor, bias_at: *mut u64,
    ) {
        let Some(net) = boxed(net) else { return super::BAD_PARAM };
        let (Ok(layer), Ok(id)) = (usize::try_from(pseudo_layer), usize::try_from(id)) else {
            return super::BAD_PARAM;
        };
        let at = |elements: usize| base + (elements * element_bytes(net.kind)) as u64;
        let int = |n: usize| c_int::try_from(n).unwrap_or(0);
        let found = net.matrix(layer, id);
        put(matrix_at, found.map_or(0, |(start, _, _)| at(start)));
        if let Some((_, rows, columns)) = found {
            let (rows, columns) = (int(rows), int(columns));
            set_tensor(matrix, net.kind, 0, vec![1, rows, columns], vec![rows * columns, columns, 1]);
        }
        let found = net.bias_start(layer, id);
        put(bias_at, found.map_or(0, at));
        if found.is_some() {
            set_tensor(bias, net.kind, 0, vec![1, int(net.hidden), 1], vec![int(net.hidden), 1, 1]);
        }
        SUCCESS
    }

    fn cudnnGetConvolutionForwardAlgorithm_v7(
        _handle: usize, _x: usize, _w: usize, _conv: usize, _y: usize, wanted: c_int, found: *mut c_int,
        results: *mut c_void,
    ) {
        one_algorithm(wanted, found, results)
    }
    fn cudnnGetConvolutionBackwardDataAlgorithm_v7(
        _handle: usize, _w: usize, _dy: usize, _conv: usize, _dx: usize, wanted: c_int, found: *mut c_int,
        results: *mut c_void,
    ) {
        one_algorithm(wanted, found, results)
    }
    fn cudnnGetConvolutionBackwardFilterAlgorithm_v7(
        _handle: usize, _x: usize, _dy: usize, _conv: usize, _dw: usize, wanted: c_int, found: *mut c_int,
        results: *mut c_void,
    ) {
        one_algorithm(wanted, found, results)
    }
    fn cudnnFindConvolutionForwardAlgorithmEx(
        _handle: usize, _a: usize, _at: usize, _b: usize, _bt: usize, _conv: usize, _c: usize, _ct: usize, wanted: c_int,
        found: *mut c_int, results: *mut c_void,
    ) {
        one_algorithm(wanted, found, results)
    }
    fn cudnnFindConvolutionBackwardDataAlgorithmEx(
        _handle: usize, _a: usize, _at: usize, _b: usize, _bt: usize, _conv: usize, _c: usize, _ct: usize, wanted: c_int,
        found: *mut c_int, results: *mut c_void,
    ) {
        one_algorithm(wanted, found, results)
    }
    fn cudnnFindConvolutionBackwardFilterAlgorithmEx(
        _handle: usize, _a: usize, _at: usize, _b: usize, _bt: usize, _conv: usize, _c: usize, _ct: usize, wanted: c_int,
        found: *mut c_int, results: *mut c_void,
    ) {
        one_algorithm(wanted, found, results)
    }
    fn cudnnGetConvolutionForwardWorkspaceSize(
        _handle: usize, _x: usize, _w: usize, _conv: usize, _y: usize, _algorithm: c_int, out: *mut usize,
    ) {
        zero_workspace(out)
    }
    fn cudnnGetConvolutionBackwardDataWorkspaceSize(
        _handle: usize, _w: usize, _dy: usize, _conv: usize, _dx: usize, _algorithm: c_int, out: *mut usize,
    ) {
        zero_workspace(out)
    }
    fn cudnnGetConvolutionBackwardFilterWorkspaceSize(
        _handle: usize, _x: usize, _dy: usize, _conv: usize, _dw: usize, _algorithm: c_int, out: *mut usize,
    ) {
        zero_workspace(out)
    }
    // Twice the probabilities, for the forward and the backward variables.
    fn cudnnGetCTCLossWorkspaceSize(
        _handle: usize, probabilities: *mut Tensor, _gradients: usize, _labels: usize, _label_lengths: usize,
        _input_lengths: usize, _algorithm: c_int, _loss: usize, out: *mut usize,
    ) {
        ctc_workspace(out, probabilities)
    }
    fn cudnnGetCTCLossWorkspaceSize_v8(
        _handle: usize, _algorithm: c_int, _loss: usize, probabilities: *mut Tensor, _gradients: usize, out: *mut usize,
    ) {
        ctc_workspace(out, probabilities)
    }
}

fn ctc_workspace(out: *mut usize, probabilities: *mut Tensor) -> c_int {
    report::guess("ctc-workspace");
    put(
        out,
        boxed(probabilities).map_or(0, |p| 2 * p.elements() * size_of::<c_float>()),
    );
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lstm() -> Recurrent {
        Recurrent {
            cell: LSTM,
            bias: 2,
            directions: 2,
            kind: 0,
            input: 10,
            hidden: 20,
            projected: 20,
            layers: 2,
        }
    }

    #[test]
    fn weights_are_counted_as_pytorch_counts_them() {
        // torch.nn.LSTM(10, 20, 2, bidirectional=True) has 18,560 parameters.
        let expected = 2 * (80 * 10 + 80 * 20 + 160) + 2 * (80 * 40 + 80 * 20 + 160);
        assert_eq!(lstm().weight_bytes(), 4 * expected);
    }

    #[test]
    fn matrices_follow_each_other_without_gaps() {
        let net = lstm();
        let mut end = 0;
        for layer in 0..net.pseudo_layers() {
            for id in 0..8 {
                let (start, rows, columns) = net.matrix(layer, id).unwrap();
                assert_eq!(start, end);
                end = start + rows * columns;
            }
            assert!(net.matrix(layer, 8).is_none());
        }
        for layer in 0..net.pseudo_layers() {
            for id in 0..8 {
                assert_eq!(net.bias_start(layer, id), Some(end));
                end += net.hidden;
            }
        }
        assert_eq!(end * 4, net.weight_bytes());
    }

    #[test]
    fn projections_have_their_own_matrix() {
        let net = Recurrent {
            projected: 5,
            directions: 1,
            layers: 1,
            bias: 0,
            ..lstm()
        };
        let (start, rows, columns) = net.matrix(0, 8).unwrap();
        assert_eq!((rows, columns), (5, 20));
        assert_eq!((start + 100) * 4, net.weight_bytes());
        assert_eq!(net.bias_start(0, 0), None);
    }
}
