"""Writes dit.npz, mm_dit.npz, flux.npz, image_autoencoder.npz and diffusion_samplers.npz: what diffusers computes.

    pip install diffusers==0.42.1 torch && python tests/data/make_diffusers.py

Computed in float64. The tables of the schedulers, which diffusers computes in float32, are replaced by float64 ones.
"""

import json
import math
import pathlib

import diffusers
import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
VERSIONS = {"diffusers": diffusers.__version__, "torch": torch.__version__}


def dit():
    torch.manual_seed(0)
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=3,
        num_layers=2,
        sample_size=6,
        patch_size=2,
        num_embeds_ada_norm=5,
        norm_eps=1e-6,
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.05, 0.2)
        # DiT has one embedding of the condition, of which diffusers keeps a copy in each block.
        blocks = model.transformer_blocks
        blocks[1].norm1.emb.load_state_dict(blocks[0].norm1.emb.state_dict())
        for block in blocks:
            block.norm1.emb.time_proj.downscale_freq_shift = 0  # As in DiT's own code.
            block.attn1.processor = diffusers.models.attention_processor.AttnProcessor()
    images = torch.randn(3, 3, 6, 6)
    times, labels = torch.tensor([0, 321, 999]), torch.tensor([0, 4, 5])
    with torch.no_grad():
        model = model.double()
        output = model(images.double(), timestep=times, class_labels=labels).sample
    arrays = {f"weights/{name}": value.numpy().astype("float32") for name, value in model.state_dict().items()}
    arrays = {name: value for name, value in arrays.items() if ".1.norm1.emb." not in name}
    arrays |= {
        "images": images.permute(0, 2, 3, 1).numpy(),
        "times": times.numpy() / 1000,
        "labels": labels.numpy(),
        "output": output.permute(0, 2, 3, 1).numpy().astype("float32"),
    }
    config = {**VERSIONS, "class": "DiTTransformer2DModel", "notes": "state dict of torch; steps divided by 1000"}
    np.savez_compressed(HERE / "dit.npz", config=json.dumps(config), **arrays)


def mm_dit():
    torch.manual_seed(1)
    model = diffusers.SD3Transformer2DModel(
        sample_size=6,
        patch_size=2,
        in_channels=3,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=5,
        caption_projection_dim=16,
        pooled_projection_dim=7,
        out_channels=3,
        pos_embed_max_size=3,
        qk_norm="rms_norm",
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.05, 0.2)
    images, text, pooled = torch.randn(3, 3, 6, 6), torch.randn(3, 4, 5), torch.randn(3, 7)
    times = torch.tensor([0.0, 0.321, 1.0])
    with torch.no_grad():
        model = model.double()
        inputs = {"encoder_hidden_states": text.double(), "pooled_projections": pooled.double()}
        output = model(images.double(), timestep=1000 * times, **inputs).sample
    arrays = {f"weights/{name}": value.numpy().astype("float32") for name, value in model.state_dict().items()}
    arrays |= {
        "images": images.permute(0, 2, 3, 1).numpy(),
        "times": times.numpy(),
        "text": text.numpy(),
        "pooled_text": pooled.numpy(),
        "output": output.permute(0, 2, 3, 1).numpy().astype("float32"),
    }
    config = {**VERSIONS, "class": "SD3Transformer2DModel", "notes": "state dict of torch; timesteps divided by 1000"}
    np.savez_compressed(HERE / "mm_dit.npz", config=json.dumps(config), **arrays)


def flux():
    torch.manual_seed(3)
    model = diffusers.FluxTransformer2DModel(
        in_channels=12,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=10,
        num_attention_heads=2,
        joint_attention_dim=5,
        pooled_projection_dim=7,
        guidance_embeds=True,
        axes_dims_rope=(4, 2, 4),
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.05, 0.2)
    model = model.double()
    rows, columns = 2, 4  # Patches of 2 x 2 pixels with 3 channels.
    images, text, pooled = torch.randn(2, 3, 2 * rows, 2 * columns), torch.randn(2, 3, 5), torch.randn(2, 7)
    times, guidance = torch.tensor([0.875, 0.125]), torch.tensor([0.25, 0.125])
    tokens = images.reshape(2, 3, rows, 2, columns, 2).permute(0, 2, 4, 1, 3, 5).reshape(2, rows * columns, 12)
    places = torch.stack(torch.meshgrid(torch.arange(1), torch.arange(rows), torch.arange(columns), indexing="ij"), -1)
    with torch.no_grad():
        output = model(
            tokens.double(),
            text.double(),
            pooled.double(),
            times.double(),
            img_ids=places.reshape(-1, 3),
            txt_ids=torch.zeros(3, 3),
            guidance=guidance.double(),
        ).sample
    output = output.reshape(2, rows, columns, 3, 2, 2).permute(0, 1, 4, 2, 5, 3).reshape(2, 2 * rows, 2 * columns, 3)
    arrays = {f"weights/{name}": value.numpy().astype("float32") for name, value in model.state_dict().items()}
    arrays |= {
        "images": images.permute(0, 2, 3, 1).numpy(),
        "times": times.numpy(),
        "guidance": guidance.numpy(),
        "text": text.numpy(),
        "pooled_text": pooled.numpy(),
        "output": output.numpy().astype("float32"),
    }
    config = {**VERSIONS, "class": "FluxTransformer2DModel", "notes": "state dict of torch"}
    np.savez_compressed(HERE / "flux.npz", config=json.dumps(config), **arrays)


def image_autoencoder():
    torch.manual_seed(2)
    model = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(4, 8),
        layers_per_block=2,
        latent_channels=3,
        norm_num_groups=2,
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.05, 0.2)
        model = model.double()
        images = torch.randn(2, 3, 6, 8).double()
        latents = model.encode(images).latent_dist
        output = model.decode(latents.mean).sample
    arrays = {f"weights/{name}": value.numpy().astype("float32") for name, value in model.state_dict().items()}
    arrays |= {
        name: value.permute(0, 2, 3, 1).numpy().astype("float32")
        for name, value in (
            ("images", images),
            ("latents", latents.mean),
            ("log_variance", latents.logvar),
            ("output", output),
        )
    }
    config = {**VERSIONS, "class": "AutoencoderKL", "notes": "state dict of torch"}
    np.savez_compressed(HERE / "image_autoencoder.npz", config=json.dumps(config), **arrays)


def prediction(state, time):
    """What a denoiser might predict."""
    return 0.8 * np.sin(3 * state) + 0.5 * time


def sample(scheduler, state):
    for step in scheduler.timesteps:
        predicted = torch.tensor(prediction(state.numpy(), float(step) / 1000))
        state = scheduler.step(predicted, step, state).prev_sample.double()
    return state.double().numpy()


def samplers():
    start = np.linspace(-2, 2, 7)
    arrays = {"start": start}
    for schedule, theirs in (("linear", "linear"), ("cosine", "squaredcos_cap_v2")):
        options = {"beta_schedule": theirs, "timestep_spacing": "trailing", "beta_start": 1e-4, "beta_end": 0.02}
        ddim = diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=True, **options)
        arrays[f"{schedule}/products"] = ddim.alphas_cumprod.numpy()
        left = torch.cumprod(1 - betas(schedule), 0)
        ddim.alphas_cumprod, ddim.final_alpha_cumprod = left, torch.ones((), dtype=torch.float64)
        ddim.set_timesteps(10)
        arrays[f"{schedule}/ddim"] = sample(ddim, torch.tensor(start))
        solver = diffusers.DPMSolverMultistepScheduler(
            algorithm_type="dpmsolver++", solver_order=2, solver_type="midpoint", final_sigmas_type="zero", **options
        )
        solver.set_timesteps(10)
        chosen = left[torch.as_tensor(solver.timesteps)]
        solver.sigmas = torch.cat([((1 - chosen) / chosen).sqrt(), torch.zeros(1, dtype=torch.float64)])
        arrays[f"{schedule}/dpm_solver_pp"] = sample(solver, torch.tensor(start))
    flow = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0)
    flow.set_timesteps(sigmas=np.linspace(1.0, 0.1, 10).tolist())
    arrays["rectified_flow/euler"] = sample(flow, torch.tensor(start))  # In float32: the scheduler casts.
    np.savez_compressed(HERE / "diffusion_samplers.npz", config=json.dumps(VERSIONS), **arrays)


def betas(schedule):
    """The betas of a schedule in float64, as diffusers defines them."""
    if schedule == "linear":
        return torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)

    def left(t):
        return math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2

    return torch.tensor(
        [min(1 - left((i + 1) / 1000) / left(i / 1000), 0.999) for i in range(1000)], dtype=torch.float64
    )


if __name__ == "__main__":
    dit()
    mm_dit()
    flux()
    image_autoencoder()
    samplers()
