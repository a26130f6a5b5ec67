"""Renders one frame of an exported scene with Cycles.

    pip install bpy==4.2.0
    amalgam export out/drop --usd drop.usda
    python render.py drop.usda drop.png --frame 5

Blender's own Python runs it too: blender --background --python render.py -- drop.usda drop.png
"""

import argparse
import math
import sys

import bpy
from mathutils import Vector


def arguments():
    words = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else sys.argv[1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", help="the file that amalgam export wrote")
    parser.add_argument("picture", help="the PNG or JPEG file to write")
    parser.add_argument("--frame", type=int, default=0, help="frame to render (default: 0)")
    parser.add_argument("--direction", type=float, nargs=3, default=[0.45, 1.0, -0.42], metavar=("X", "Y", "Z"),
                        help="where the camera looks (default: 0.45 1 -0.42)")
    parser.add_argument("--size", type=int, nargs=2, default=[1280, 720], metavar=("WIDTH", "HEIGHT"),
                        help="size of the picture [pixels]")
    parser.add_argument("--samples", type=int, default=96, help="paths per pixel (default: 96)")
    parser.add_argument("--room", type=float, default=1.0, help="more than 1: the camera stands farther away")
    return parser.parse_args(words)


def shapes(graph):
    """Objects that have a surface or points, with the corners of the box around each."""
    for shape in bpy.data.objects:
        if shape.type in {"MESH", "POINTCLOUD"}:
            box = shape.evaluated_get(graph).bound_box
            yield shape, [shape.matrix_world @ Vector(corner) for corner in box]


def is_water(material):
    """The export gives fluids the smoothest material."""
    shader = material.node_tree.nodes.get("Principled BSDF")
    return shader is not None and shader.inputs["Roughness"].default_value < 0.1


def make_water(material, length):
    """Water with the material's colour through a thickness of `length` [m]."""
    nodes, links = material.node_tree.nodes, material.node_tree.links
    colour = tuple(nodes["Principled BSDF"].inputs["Base Color"].default_value)
    nodes.clear()
    output = nodes.new("ShaderNodeOutputMaterial")
    surface = nodes.new("ShaderNodeBsdfPrincipled")
    surface.inputs["Base Color"].default_value = (1.0, 1.0, 1.0, 1.0)
    surface.inputs["Roughness"].default_value = 0.0
    surface.inputs["IOR"].default_value = 1.33
    surface.inputs["Transmission Weight"].default_value = 1.0
    links.new(surface.outputs["BSDF"], output.inputs["Surface"])
    volume = nodes.new("ShaderNodeVolumeAbsorption")
    volume.inputs["Color"].default_value = colour
    volume.inputs["Density"].default_value = 1.0 / length
    links.new(volume.outputs["Volume"], output.inputs["Volume"])


def stage(low, size):
    """A floor, a sky and a sun."""
    bpy.ops.mesh.primitive_plane_add(size=60.0 * size, location=(0.0, 0.0, low - 0.002 * size))
    floor = bpy.data.materials.new("floor")
    floor.use_nodes = True
    shader = floor.node_tree.nodes["Principled BSDF"]
    shader.inputs["Base Color"].default_value = (0.42, 0.44, 0.47, 1.0)
    shader.inputs["Roughness"].default_value = 0.7
    bpy.context.object.data.materials.append(floor)
    world = bpy.data.worlds.new("sky")
    world.use_nodes = True
    world.node_tree.nodes["Background"].inputs["Color"].default_value = (0.62, 0.75, 0.92, 1.0)
    world.node_tree.nodes["Background"].inputs["Strength"].default_value = 0.7
    bpy.context.scene.world = world
    sun = bpy.data.lights.new("sun", "SUN")
    sun.energy, sun.angle = 3.5, math.radians(2.0)
    lamp = bpy.data.objects.new("sun", sun)
    lamp.rotation_euler = (math.radians(38.0), math.radians(-24.0), 0.0)
    bpy.context.collection.objects.link(lamp)


def look(corners, direction, room):
    """A camera that sees all corners."""
    camera = bpy.data.objects.new("camera", bpy.data.cameras.new("camera"))
    camera.rotation_euler = Vector(direction).to_track_quat("-Z", "Y").to_euler()
    camera.data.clip_end = 1e4
    bpy.context.collection.objects.link(camera)
    bpy.context.scene.camera = camera
    graph = bpy.context.evaluated_depsgraph_get()
    points = [value for corner in corners for value in corner]
    place, _ = camera.camera_fit_coords(graph, points)
    middle = sum(corners, Vector()) / len(corners)
    camera.location = middle + room * (place - middle)


def main():
    words = arguments()
    bpy.ops.wm.read_factory_settings(use_empty=True)
    bpy.ops.wm.usd_import(filepath=words.scene)
    scene = bpy.context.scene
    scene.frame_set(words.frame)
    found = list(shapes(bpy.context.evaluated_depsgraph_get()))
    if not found:
        sys.exit(f"{words.scene} holds nothing to render")
    corners = [corner for _, box in found for corner in box]
    low = [min(corner[axis] for corner in corners) for axis in range(3)]
    high = [max(corner[axis] for corner in corners) for axis in range(3)]
    size = max(b - a for a, b in zip(low, high))
    for material in bpy.data.materials:
        if material.use_nodes and is_water(material):
            make_water(material, 0.3 * size)
    for shape, _ in found:
        if shape.type == "MESH" and any(material and material.name.endswith("_surface") for material in shape.data.materials):
            for face in shape.data.polygons:
                face.use_smooth = True
    stage(low[2], size)
    scene.render.engine = "CYCLES"
    scene.cycles.device = "CPU"
    scene.cycles.samples = words.samples
    scene.cycles.use_denoising = True
    scene.cycles.max_bounces = 16
    scene.cycles.transmission_bounces = 16
    scene.view_settings.view_transform = "AgX"
    scene.view_settings.look = "AgX - Medium High Contrast"
    scene.render.resolution_x, scene.render.resolution_y = words.size
    look(corners, words.direction, words.room)
    scene.render.filepath = bpy.path.abspath(words.picture)
    is_jpeg = words.picture.lower().endswith((".jpg", ".jpeg"))
    scene.render.image_settings.file_format = "JPEG" if is_jpeg else "PNG"
    scene.render.image_settings.quality = 90
    bpy.ops.render.render(write_still=True)


main()
