"""Which kernel PyTorch takes for attention on a card, where its own choice cannot be asked.

The rules are those of PyTorch's `sdp_utils.cpp`, as far as they decide memory (compared on 2.13): flash
attention for half precision from compute capability 8.0 on and without a mask, memory-efficient attention for
the rest, plain matrices where neither may be used.
"""

import torch

aten = torch.ops.aten
FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_backward.default
EFFICIENT_BACKWARD = aten._scaled_dot_product_efficient_attention_backward.default
IN_ATTENTION = {FLASH_BACKWARD, EFFICIENT_BACKWARD}
HALF = (torch.float16, torch.bfloat16)
WIDEST_FLASH_HEAD = 256
# The kernels want rows of masks that begin at multiples of so many elements.
MASK_ALIGNMENT = 16


def attend(
    card, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):
    """`torch.nn.functional.scaled_dot_product_attention` as on that card."""
    query, key, value, attn_mask = (autocast(part) for part in (query, key, value, attn_mask))
    # As any such operator, it does not see the setting itself.
    with torch.autocast("cuda", enabled=False):
        if flash_may_run(card, query, key, value, attn_mask):
            return flash(query, key, value, dropout_p, is_causal, scale)
        if efficient_may_run(card, query, key, value, attn_mask):
            if enable_gqa:
                key, value = repeated(query, key), repeated(query, value)
            return efficient(query, key, value, attn_mask, dropout_p, is_causal, scale)
        mask = floating(attn_mask, query.dtype)
        return aten._scaled_dot_product_attention_math(
            query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]


def autocast(tensor):
    """Attention is among the operators that autocast runs in lower precision."""
    if tensor is None or not tensor.dtype.is_floating_point or not torch.is_autocast_enabled("cuda"):
        return tensor
    return tensor.to(torch.get_autocast_dtype("cuda"))


def flash_may_run(card, query, key, value, mask):
    return (
        torch.backends.cuda.flash_sdp_enabled()
        and card.capability >= (8, 0)
        and mask is None
        and query.dim() == 4
        and query.dtype in HALF
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] == key.shape[-1] == value.shape[-1] <= WIDEST_FLASH_HEAD
        and rows_are_dense(query, key, value)
    )


def efficient_may_run(card, query, key, value, mask):
    dtypes = (torch.float32, *HALF) if card.capability >= (8, 0) else (torch.float32, torch.float16)
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and query.dim() == 4
        and query.dtype in dtypes
        and query.dtype == key.dtype == value.dtype
        and rows_are_dense(query, key, value)
        and not (mask is not None and mask.requires_grad and mask.dim() != 4)
    )


def rows_are_dense(*tensors):
    return all(tensor.stride(-1) == 1 and tensor.numel() > 0 for tensor in tensors)


def flash(query, key, value, dropout_p, is_causal, scale):
    width = query.shape[-1]
    scale = width**-0.5 if scale is None else scale
    padding = -width % 8
    if padding:
        query, key, value = (torch.nn.functional.pad(part, (0, padding)) for part in (query, key, value))
    found = aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, return_debug_mask=False, scale=scale
    )[0]
    return found[..., :width] if padding else found


def backward_scratch(func, query):
    """What the backward pass of a fused attention takes while it runs.

    Sums of rows, and gradients of the queries that blocks add up in single precision.
    """
    batch, heads, length, width = query.shape
    if func is FLASH_BACKWARD:
        rows = batch * heads * up_to_multiple(length, 128)
        return (4 * rows, 4 * rows * up_to_multiple(width, 32))
    rows = batch * heads * length
    added_up = 4 * rows * width + 128 * batch * heads
    return (4 * rows, added_up) if query.dtype in HALF else (4 * rows * width, 4 * rows, added_up)


def up_to_multiple(number, of):
    return -(-number // of) * of


def efficient(query, key, value, mask, dropout_p, is_causal, scale):
    trained = torch.is_grad_enabled() and any(part.requires_grad for part in (query, key, value))
    mask = floating(mask, query.dtype)
    if mask is not None:
        shape = (*query.shape[:2], query.shape[2], key.shape[2])
        padding = -mask.shape[-1] % MASK_ALIGNMENT
        if padding and mask.shape[-1] > 1:
            mask = torch.nn.functional.pad(mask, (0, padding))[..., :-padding]
        mask = mask.expand(shape)
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, trained, dropout_p, is_causal, scale=scale
    )[0]


def floating(mask, dtype):
    """A mask of yes and no becomes one of zeros and minus infinity."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))


def repeated(query, tensor):
    """Grouped heads, one for each of the query's."""
    times = query.shape[-3] // tensor.shape[-3]
    return tensor if times == 1 else tensor.repeat_interleave(times, dim=-3)
